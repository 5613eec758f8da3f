//! Flags of wrk, k6, hey, oha and ab that mean something else here or nothing: each is refused with the right spelling.
//!
//! A flag that two of these tools use for two things has no meaning here, and a value that only another tool would give to a flag of ours is
//! refused: `wrk -d30s` must not send the body "30s".

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use seawall_load::rate;

/// Commands that send load.
const SENDING: [&str; 3] = ["attack", "find", "isolate"];

/// What a flag of another tool is here.
const FLAGS: [(&str, &str); 41] = [
    (
        "-t",
        "hey's and oha's -t is --timeout (such as --timeout 20s), ab's is -z (-z 10s), wrk's is --threads",
    ),
    (
        "-A",
        "hey's and oha's -A TYPE is -H 'Accept: TYPE'; ab's -A USER:PASSWORD is http://USER:PASSWORD@HOST/",
    ),
    ("-a", "write http://USER:PASSWORD@HOST/"),
    ("-b", "leave it out: the system sets the size of socket buffers"),
    ("-B", "ab's -B ADDRESS is --laddr ADDRESS"),
    ("-C", "ab's -C NAME=VALUE is -H 'Cookie: NAME=VALUE'"),
    ("-e", "write --hdr FILE for percentiles"),
    ("-E", "ab's -E FILE is --cert FILE"),
    ("-g", "write --output FILE --to csv"),
    ("-i", "ab's -i is -m HEAD; k6's -i N is -n N"),
    ("-j", "write --summary json"),
    ("-l", "leave it out: responses may differ in length"),
    ("-L", "leave it out: percentiles are always shown"),
    ("-p", "ab's -p FILE is -D FILE; oha's -p N is --streams N"),
    ("-P", "write --proxy-header 'Proxy-Authorization: Basic ...'"),
    ("-r", "oha's -r N is --redirects N; ab's -r is always on"),
    ("-R", "wrk2's -R N is -q N"),
    (
        "-s",
        "ab's -s SECONDS is --timeout (such as --timeout 30s); wrk's -s SCRIPT has no counterpart: use --targets with --template; k6's is --stages",
    ),
    ("-S", "leave it out"),
    ("-u", "k6's -u N is -c N; ab's -u FILE is -m PUT -D FILE"),
    ("-v", "leave it out"),
    ("-w", "leave it out: seawall report -type=html makes a page"),
    ("-x", "hey's -x HOST:PORT is --proxy http://HOST:PORT; k6's is --proxy, too"),
    ("-X", "ab's -X HOST:PORT is --proxy http://HOST:PORT; curl's -X METHOD is -m METHOD"),
    ("--request", "write --method METHOD"),
    ("--vus", "k6's --vus N is --concurrency N (-c N)"),
    ("--iterations", "k6's --iterations N is --requests N (-n N)"),
    ("--stage", "k6's --stage 30s:10 sets clients; --stages sets rates: seawall help stages"),
    ("--script", "wrk's scripts have no counterpart: use --targets with --template"),
    ("--latency", "leave it out: percentiles are always shown"),
    ("--disable-color", "write --live lines"),
    ("--redirect", "write --redirects N"),
    ("--max-redirects", "write --redirects N"),
    ("--quiet", "write --live none"),
    ("--json", "write --summary json"),
    ("--h2", "leave it out: HTTP/2 is used over TLS where the server speaks it; without TLS: --h2c"),
    ("--http-version", "write --http2=false for HTTP/1.1; --h2c for HTTP/2 without TLS"),
    ("--host", "write -H 'Host: NAME'"),
    ("--rand-regex-url", "write --template and a placeholder: seawall help templates"),
    ("--insecure-skip-tls-verify", "write --insecure"),
    ("--out", "write --output FILE, and --to json or csv"),
];

/// Flags of hey, oha and ab whose meaning is certain, in our words; the others as they are.
///
/// hey's `-disable-keepalive` has two dashes here already ([`crate::flags`]).
pub(crate) fn translate(words: Vec<OsString>) -> Vec<OsString> {
    let is_sending = |word: &OsString| SENDING.iter().any(|command| word == command);
    let Some(command) = words.iter().position(is_sending) else { return words };
    let mut translated = Vec::with_capacity(words.len());
    let mut rest = words.into_iter();
    translated.extend(rest.by_ref().take(command + 1));
    let (mut burst_delay, mut burst_size) = (None, None);
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("--") => {
                translated.push(word);
                translated.extend(rest.by_ref());
            }
            Some("--no-tui") => translated.push("--live=lines".into()),
            Some("--disable-keepalive") => translated.push("--keepalive=false".into()),
            Some("--disable-redirects") => translated.push("--redirects=-1".into()),
            // Responses are never asked for compressed, and time always counts from the instant a request was due.
            Some("--disable-compression" | "--latency-correction") => {}
            Some("--burst-delay") => burst_delay = rest.next(),
            Some("--burst-rate") => burst_size = rest.next(),
            // oha's takes a number, of streams.
            Some("-p") => match rest.next() {
                Some(file) if file.to_str().is_some_and(|text| text.parse::<u64>().is_err()) => {
                    translated.extend(["--body".into(), file]);
                }
                value => translated.extend([word].into_iter().chain(value)),
            },
            _ => translated.push(word),
        }
    }
    if let Some(delay) = burst_delay {
        let (size, delay) = (burst_size.unwrap_or("1".into()), delay.to_string_lossy().into_owned());
        let size = size.to_string_lossy();
        // Before what may be behind two dashes.
        let flags = [format!("--rate={size}/{delay}"), format!("--arrivals=burst:{size}")];
        translated.splice(command + 1..command + 1, flags.map(OsString::from));
    }
    translated
}

/// What is wrong with words that clap would take, as [`crate::flags`] has spelled them.
pub(crate) fn mistake(words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let command = words.iter().position(|word| SENDING.contains(word))?;
    let words: Vec<&str> = words[command + 1..].iter().copied().take_while(|word| *word != "--").collect();
    words.iter().enumerate().find_map(|(place, word)| {
        let next = words.get(place + 1).copied().unwrap_or_default();
        let value = |flag: &str| {
            let glued = word.strip_prefix(flag)?;
            Some(if glued.is_empty() { next } else { glued.trim_start_matches('=') })
        };
        value("-d").and_then(data).or_else(|| value("-o").and_then(output))
    })
}

/// Nobody sends a duration or a number as a body by hand, and wrk and k6 have a flag `-d` that takes one.
fn data(value: &str) -> Option<String> {
    if let Some(file) = value.strip_prefix('@') {
        return Some(format!("-d {value}: a body is sent as typed; write -D {file} to send the file"));
    }
    let is_time = rate::duration(value).is_ok() || (value.parse::<f64>().is_ok());
    is_time.then(|| {
        let unit = if value.ends_with(|letter: char| letter.is_ascii_digit()) { "s" } else { "" };
        format!(
            "-d {value}: -d is the body of requests; the -d of wrk and k6 is -z: write -z {value}{unit}. To send the \
             body {value}, write --data {value}"
        )
    })
}

/// hey's output type, and k6's outputs.
fn output(value: &str) -> Option<String> {
    let kind = value.split_once('=').map_or(value, |(kind, _)| kind);
    let is_type = matches!(kind, "csv" | "json") || (kind != value && kind == "influxdb");
    is_type.then(|| {
        format!(
            "-o {value}: -o is a file (oha's -o); hey's -o csv is --output - --to csv, k6's -o json=FILE is --output \
             FILE --to json. To write a file of that name: -o ./{value}"
        )
    })
}

/// What to write for a word that clap does not know, if another tool knows it.
pub(crate) fn tip(error: &clap::Error) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let unknown = word(ContextKind::InvalidArg)?;
            let flag = unknown.split('=').next().unwrap_or_default();
            let (_, tip) = FLAGS.iter().find(|(name, _)| *name == flag)?;
            Some(format!("unexpected argument '{flag}': {tip}"))
        }
        ErrorKind::InvalidSubcommand => {
            let unknown = word(ContextKind::InvalidSubcommand)?;
            let is_url = unknown.contains("://") || unknown == "run";
            is_url.then(|| format!("unrecognized command '{unknown}': write seawall attack URL"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Option<String> {
        mistake(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_duration_is_never_a_body() {
        for words in ["-d30s", "-d 30s", "-d30", "-d=1m30s", "-d 10"] {
            let said = of(&format!("seawall attack -c 1 {words} http://a/")).unwrap();
            assert!(said.contains("write -z "), "{said}");
        }
        assert!(of("seawall attack -d 30 http://a/").unwrap().contains("write -z 30s"));
        assert!(of("seawall attack -d @body.json http://a/").unwrap().contains("-D body.json"));
        for words in ["-d {}", "--data 30s", "-d a=1", "-- -d30s", "--duration 30s"] {
            assert_eq!(of(&format!("seawall attack {words}")), None, "{words}");
        }
        assert_eq!(of("seawall report -d 30"), None);
    }

    #[test]
    fn flags_of_hey_oha_and_ab_are_said_in_our_words() {
        let of = |words: &str| {
            let words = translate(words.split_whitespace().map(OsString::from).collect());
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (typed, meant) in [
            ("seawall attack --no-tui http://a/", "seawall attack --live=lines http://a/"),
            ("seawall attack --disable-keepalive -n 1", "seawall attack --keepalive=false -n 1"),
            (
                "seawall attack -n 10 --burst-delay 2s --burst-rate 4",
                "seawall attack --rate=4/2s --arrivals=burst:4 -n 10",
            ),
            ("seawall attack -p a.json", "seawall attack --body a.json"),
            ("seawall attack -p 4", "seawall attack -p 4"),
            ("seawall attack -- -p a", "seawall attack -- -p a"),
            ("seawall report -p a", "seawall report -p a"),
        ] {
            assert_eq!(of(typed), meant);
        }
    }

    #[test]
    fn an_output_type_is_never_a_file() {
        assert!(of("seawall attack -o csv http://a/").unwrap().contains("--to csv"));
        assert!(of("seawall attack -o json=a.json http://a/").unwrap().contains("--to json"));
        assert_eq!(of("seawall attack -o ./csv http://a/"), None);
        assert_eq!(of("seawall attack -output csv -targets a"), None);
    }

    #[test]
    fn no_flag_of_ours_is_said_to_be_anothers() {
        use clap::CommandFactory as _;
        let command = crate::Cli::command();
        let attack = command.find_subcommand("attack").unwrap();
        for argument in attack.get_arguments() {
            let short = argument.get_short().map(|letter| format!("-{letter}"));
            let names = argument.get_long().map(|long| format!("--{long}")).into_iter().chain(short);
            for name in names {
                assert!(!FLAGS.iter().any(|(flag, _)| *flag == name), "{name}");
            }
        }
    }
}
