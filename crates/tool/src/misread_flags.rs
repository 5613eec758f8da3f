//! Flags of wrk, k6, hey, oha and ab that mean something else here or nothing: each is refused with the right spelling.
//!
//! A flag that two of these tools use for two things has no meaning here, and a value that only another tool would give to a flag of ours is
//! refused: `wrk -d30s` must not send the body "30s".

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use seawall_load::rate;

/// Commands that send load.
const SENDING: [&str; 3] = ["attack", "find", "isolate"];

/// Flags of other tools, each with its meaning and its replacement here.
const FLAGS: [(&str, &str); 42] = [
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
        "ab's -s SECONDS is --timeout (such as --timeout 30s); wrk's -s SCRIPT has no counterpart: use --targets with --template; k6's -s is --stages",
    ),
    ("-S", "leave it out"),
    ("-u", "k6's -u N is -c N; ab's -u FILE is -m PUT -D FILE"),
    ("-v", "leave it out"),
    ("-w", "leave it out: seawall report -type=html makes a page"),
    ("-x", "hey's -x HOST:PORT is --proxy http://HOST:PORT; k6's -x is --proxy, too"),
    ("-X", "ab's -X HOST:PORT is --proxy http://HOST:PORT; curl's -X METHOD is -m METHOD"),
    ("--request", "write --method METHOD"),
    ("--vus", "k6's --vus N is --concurrency N (-c N)"),
    ("--iterations", "k6's --iterations N is --requests N (-n N)"),
    ("--stage", "k6's --stage 30s:10 sets clients; --stages sets rates; see seawall help stages"),
    ("--script", "wrk's scripts have no counterpart: use --targets with --template"),
    ("--latency", "leave it out: percentiles are always shown"),
    ("--disable-color", "write --live lines"),
    ("--redirect", "write --redirects N"),
    ("--max-redirects", "write --redirects N"),
    ("--quiet", "write --live none"),
    ("--json", "write --summary json"),
    ("--cpus", "write it before the command, as vegeta does: seawall -cpus N attack"),
    ("--h2", "leave it out: HTTP/2 is used over TLS where the server speaks it; without TLS: --h2c"),
    ("--http-version", "write --http2=false for HTTP/1.1; --h2c for HTTP/2 without TLS"),
    ("--host", "write -H 'Host: NAME'"),
    ("--rand-regex-url", "write --template, and a placeholder in the URL's path; see seawall help templates"),
    ("--insecure-skip-tls-verify", "write --insecure"),
    ("--out", "write --output FILE, and --to json or csv"),
];

/// Flags of hey, oha and ab with a certain meaning, with our flags; all other words stay.
///
/// hey's `-disable-keepalive` has two dashes here already ([`crate::go_flags`]).
pub(crate) fn translate_flags(words: Vec<OsString>) -> Vec<OsString> {
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

/// Finds a value or a word of another tool that clap would accept, in words that [`crate::go_flags`] has spelled.
pub(crate) fn find_mistake(typed: &[OsString]) -> Option<String> {
    let words: Vec<&str> = typed.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let command = words.iter().position(|word| SENDING.contains(word))?;
    let words: Vec<&str> = words[command + 1..].iter().copied().take_while(|word| *word != "--").collect();
    if let Some(("run", rest)) = words.split_first().map(|(first, rest)| (*first, rest)) {
        let is_script =
            rest.iter().any(|word| *word == "-" || word.ends_with(".js") || word.ends_with(".ts"));
        if is_script {
            let line = respelled(typed).unwrap_or_else(|| "URL".to_owned());
            return Some(format!(
                "k6's run and its scripts have no counterpart: write seawall attack {line}"
            ));
        }
    }
    words.iter().enumerate().find_map(|(place, word)| {
        let next = words.get(place + 1).copied().unwrap_or_default();
        let value = |flag: &str| {
            let glued = word.strip_prefix(flag)?;
            Some(if glued.is_empty() { next } else { glued.trim_start_matches('=') })
        };
        let body = || Some(value("-d").and_then(data)? + &whole_line(typed));
        body().or_else(|| value("-o").and_then(output))
    })
}

/// Nobody sends a duration or a number as a body by hand, and wrk and k6 have a flag `-d` that takes one.
fn data(value: &str) -> Option<String> {
    if let Some(file) = value.strip_prefix('@') {
        return Some(format!("-d {value}: a body is sent as typed; write -D {file} to send the file"));
    }
    is_time(value).then(|| {
        format!(
            "-d {value}: -d is the body of requests; the -d of wrk and k6 is -z: write -z {}. To send the body {value}, \
             write --data {value}",
            seconds(value)
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

/// Notes on a command whose flags another tool reads otherwise: what they mean here, and how to get the other meaning.
///
/// The words are as typed, because [`translate_flags`] takes the spelling of other tools away.
pub(crate) fn notes_on_flags(typed: &[OsString]) -> Vec<String> {
    let words: Vec<&str> = typed.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let Some(command) = words.iter().position(|word| *word == "attack") else { return Vec::new() };
    let words: Vec<&str> = words[command + 1..].iter().copied().take_while(|word| *word != "--").collect();
    let number = |flag: &str| short_value(&words, flag)?.parse::<f64>().ok();
    let mut notes = Vec::new();
    if let (Some(rate), Some(clients)) = (number("-q"), number("-c").filter(|clients| *clients > 1.0)) {
        notes.push(format!(
            "-q {rate} is the rate of all {clients} clients together, as in oha. hey's -q {rate} is per client: write -q {}. \
             (--rate {rate} omits this note)",
            rate * clients
        ));
    }
    let is_ab = short_value(&words, "-p").is_some_and(|value| value.parse::<u64>().is_err());
    let says_keepalive = words.iter().any(|word| *word == "-k" || word.contains("keepalive"));
    if is_ab && !says_keepalive {
        notes.push(
            "connections stay open between requests. ab without -k opens a connection per request: write \
             --keepalive=false. (-k omits this note)"
                .to_owned(),
        );
    }
    notes
}

/// The value of a one-letter flag, behind it or in the next word.
fn short_value<'a>(words: &[&'a str], flag: &str) -> Option<&'a str> {
    words.iter().enumerate().find_map(|(place, word)| {
        let glued = word.strip_prefix(flag)?;
        // `-queue` is not `-q ueue`: as in [`crate::flags`].
        let is_other_flag = glued.starts_with(|letter: char| letter.is_ascii_lowercase());
        match glued {
            "" => words.get(place + 1).copied(),
            _ if is_other_flag => None,
            _ => Some(glued.trim_start_matches('=')),
        }
    })
}

/// Suggests a replacement for a word that clap does not know, if another tool knows it.
pub(crate) fn suggest_replacement(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let unknown = word(ContextKind::InvalidArg)?;
            let flag = unknown.split('=').next().unwrap_or_default();
            let (_, tip) = FLAGS.iter().find(|(name, _)| *name == flag)?;
            Some(format!("unexpected argument '{flag}': {tip}{}", whole_line(words)))
        }
        ErrorKind::InvalidSubcommand if word(ContextKind::InvalidSubcommand)? == "compare" => Some(
            "unrecognized command 'compare': write seawall find --compare BEFORE.json AFTER.json".to_owned(),
        ),
        _ => None,
    }
}

/// Returns the command line with `attack` inserted if it has no command, such as `seawall -z 10s URL`.
pub(crate) fn insert_missing_command(error: &clap::Error, typed: &[OsString]) -> Option<Vec<OsString>> {
    let (program, rest) = typed.split_first()?;
    let first = rest.first()?;
    let is_run = first == "run";
    let is_flag = first.to_str().is_some_and(|word| word.starts_with('-'));
    let is_load = match error.kind() {
        // clap handles `--vers`: it suggests `--version`.
        ErrorKind::UnknownArgument => {
            is_flag && rest.iter().any(|word| !word.to_string_lossy().starts_with("--"))
        }
        ErrorKind::InvalidSubcommand => is_run || is_url(first),
        _ => false,
    };
    is_load.then(|| [program.clone(), "attack".into()].into_iter().chain(rest.iter().cloned()).collect())
}

/// Describes the right line for a line without a command, and the mistake that remains in it.
pub(crate) fn describe_missing_command(words: &[OsString], mistake: Option<String>) -> String {
    let (line, mistake) = match respelled(words) {
        Some(line) => (line, None),
        None => (spelled(words.get(2..).unwrap_or_default()), mistake),
    };
    let mistake = mistake.map_or_else(String::new, |mistake| format!("\n  {mistake}"));
    format!("a command is missing. Write: seawall attack {line}{mistake}")
}

fn is_url(word: &OsString) -> bool {
    word.to_str().is_some_and(|word| word.starts_with("http://") || word.starts_with("https://"))
}

/// Returns the whole line in our words, as a sentence to add to an error; empty if the tool is uncertain.
fn whole_line(words: &[OsString]) -> String {
    respelled(words).map_or_else(String::new, |line| format!(". The whole line: seawall attack {line}"))
}

/// The words behind `seawall attack` for a line of wrk or k6; none if it may be of another tool.
///
/// wrk's `-d` takes a time, and k6 says `run`, `--vus` or `--iterations`.
fn respelled(words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let command = words.iter().position(|word| *word == "attack")?;
    let words = &words[command + 1..];
    let is_time = |value: &str| is_time(value);
    let is_k6 = words.first() == Some(&"run")
        || words.iter().any(|word| word.starts_with("--vus") || word.starts_with("--iterations"));
    let is_wrk = !is_k6 && short_value(words, "-d").is_some_and(is_time);
    if !is_k6 && !is_wrk {
        return None;
    }
    let mut line: Vec<String> = Vec::new();
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        let Some((flag, glued)) = flag_of(word) else {
            match word {
                "run" if is_k6 => {}
                url if url.contains("://") || is_wrk => line.push(quoted(url)),
                // The script.
                _ => {}
            }
            continue;
        };
        let mut value = || glued.or_else(|| rest.next()).filter(|value| !value.is_empty());
        let ours = match flag {
            "-d" | "--duration" => format!("-z {}", seconds(value()?)),
            "-c" | "--connections" if is_wrk => format!("-c {}", value()?),
            "-R" | "--rate" if is_wrk => format!("-q {}", value()?),
            "-T" | "--timeout" if is_wrk => format!("--timeout {}", seconds(value()?)),
            "-H" | "--header" if is_wrk => format!("-H {}", quoted(value()?)),
            "-u" | "--vus" if is_k6 => format!("-c {}", value()?),
            "-i" | "--iterations" if is_k6 => format!("-n {}", value()?),
            "-t" | "--threads" | "-s" | "--script" if is_wrk => {
                value()?;
                continue;
            }
            "-L" | "--latency" if is_wrk => continue,
            _ => return None,
        };
        line.push(ours);
    }
    if !line.iter().any(|word| word.contains("://") || is_wrk && !word.starts_with('-')) {
        line.push("URL".to_owned());
    }
    Some(line.join(" "))
}

/// A flag and the value behind it in the same word.
fn flag_of(word: &str) -> Option<(&str, Option<&str>)> {
    if word.starts_with("--") {
        return Some(word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value))));
    }
    if !word.starts_with('-') || !word.is_char_boundary(2) || word.len() < 2 {
        return None;
    }
    let (flag, glued) = word.split_at(2);
    Some((flag, Some(glued.trim_start_matches('=')).filter(|glued| !glued.is_empty())))
}

fn is_time(value: &str) -> bool {
    rate::parse_duration(value).is_ok() || value.parse::<f64>().is_ok()
}

/// A number of seconds needs its unit.
fn seconds(value: &str) -> String {
    let unit = if value.ends_with(|letter: char| letter.is_ascii_digit()) { "s" } else { "" };
    format!("{value}{unit}")
}

fn spelled(words: &[OsString]) -> String {
    words.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=%@,+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Option<String> {
        find_mistake(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
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
            let words = translate_flags(words.split_whitespace().map(OsString::from).collect());
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

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_line_of_wrk_or_k6_is_said_as_a_whole_in_our_words() {
        for (typed, ours) in [
            ("-t12 -c400 -d30s http://a/", Some("-c 400 -z 30s http://a/")),
            ("-t 2 -c 100 -d 30 -R2000 --latency http://a/", Some("-c 100 -z 30s -q 2000 http://a/")),
            ("-d1m -s post.lua --timeout 2s http://a/", Some("-z 1m --timeout 2s http://a/")),
            ("run --vus 10 --duration 30s script.js", Some("-c 10 -z 30s URL")),
            ("run -u 10 -i=100 script.js", Some("-c 10 -n 100 URL")),
            ("--iterations=5 http://a/", Some("-n 5 http://a/")),
            ("-d30s -x http://a/", None),
            ("-t 20 -n 6 http://a/", None),
            ("-d {} http://a/", None),
        ] {
            assert_eq!(respelled(&words(&format!("seawall attack {typed}"))).as_deref(), ours, "{typed}");
        }
    }

    #[test]
    fn a_flag_that_hey_or_ab_reads_otherwise_gets_a_note() {
        let of = |line: &str| notes_on_flags(&words(&format!("seawall attack {line} http://a/"))).join("\n");
        for line in ["-c 10 -q 5", "-z 10s -q5 -c10"] {
            assert!(of(line).contains("hey's -q 5 is per client: write -q 50."), "{line}");
        }
        assert!(of("-n 10 -c 2 -p file.txt").contains("write --keepalive=false"));
        for line in [
            "-c 10 --rate 5",
            "-q 5",
            "-c 1 -q 5",
            "-n 200 -c 50",
            "-p 4",
            "-k -p file.txt",
            "-disable-keepalive -p file.txt",
            "-- -q 5 -c 10",
        ] {
            assert_eq!(of(line), "", "{line}");
        }
        assert_eq!(notes_on_flags(&words("seawall find -c 10 -q 5")), [""; 0]);
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_change_it() {
        assert_eq!(
            spelled(&["-H".into(), "a: b".into(), "it's".into(), "".into()]),
            r"-H 'a: b' 'it'\''s' ''"
        );
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
