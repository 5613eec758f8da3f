//! The inputs of the pods: the arguments of a command and all its files, as one Secret.
//!
//! Everything is in a Secret, because targets and headers contain tokens, and more people can read a ConfigMap or a Job. Each file is
//! mounted at the user's own path, so arguments and references between files stay valid. This module knows no flags and reads no files.

use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use seawall_load::input_files::CapturedInputs;
use serde_json::{Map, Value};

/// The path of the arguments in a pod, a JSON array of strings. It is not below `/seawall`, because that is the program in its image.
pub const ARGUMENTS_PATH: &str = "/run/seawall/arguments";

/// The path in a pod of the user's standard input.
pub const STDIN_PATH: &str = "/run/seawall/stdin";

/// The most bytes of all values of a Secret, before base64. Source: `MaxSecretSize`, kubernetes/kubernetes pkg/apis/core/types.go, and
/// `ValidateSecret` in pkg/apis/core/validation/validation.go, which adds up only the values.
pub const MAX_SECRET_BYTES: usize = 1 << 20;

/// The most files. Each file is a separate mount in every pod.
pub const MOST_FILES: usize = 250;

/// The directories without mounts: those of the kernel, the container runtime and the pod, and the program.
const FORBIDDEN: [&str; 6] = ["/proc", "/sys", "/dev", "/run/seawall", "/seawall", "/var/run/secrets"];

/// Arguments and files that fit into a Secret and can be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobInputs {
    arguments: String,
    placed: Vec<MountedFile>,
    /// The directory of relative paths, if there are any.
    working_dir: Option<String>,
}

/// A value and its mount path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MountedFile {
    key: String,
    path: String,
    bytes: Vec<u8>,
}

/// A reason why an input cannot be given to pods.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobInputsError {
    /// The inputs exceed the size of a Secret.
    #[error(
        "the command line and its files have {bytes} bytes together, but the Secret that carries them to the pods takes at most \
         {MAX_SECRET_BYTES}; the largest is {largest} with {of_largest}"
    )]
    TooLarge {
        /// The total size.
        bytes: usize,
        /// The name of the largest input.
        largest: String,
        /// The size of the largest input.
        of_largest: usize,
    },
    /// The command has too many files.
    #[error(
        "the command names {0} files, but pods get at most {MOST_FILES}: write the bodies into the targets file, in the json format"
    )]
    TooMany(usize),
    /// A file cannot be mounted at its path in a pod.
    #[error("cannot give {path} to pods: {why}")]
    CannotMount {
        /// The path as the user wrote it.
        path: String,
        /// The reason.
        why: &'static str,
    },
}

impl JobInputs {
    /// Collects the arguments and files of a command. Relative paths start at `working_dir`. No file may be in a directory of `taken`,
    /// which are volumes.
    ///
    /// # Errors
    /// Every [`JobInputsError`].
    pub fn new(
        arguments: &[String],
        kept: CapturedInputs,
        working_dir: &Path,
        taken: &[&str],
    ) -> Result<Self, Vec<JobInputsError>> {
        let (mut placed, mut unfit): (Vec<MountedFile>, _) = (Vec::new(), Vec::new());
        let is_relative = kept.files.iter().any(|named| named.path.is_relative());
        for named in kept.files {
            match place(&named.path, working_dir, taken) {
                // The same file may appear under two paths.
                Ok(path) if placed.iter().any(|placed| placed.path == path) => {}
                Ok(path) => {
                    placed.push(MountedFile {
                        key: format!("file-{}", placed.len()),
                        path,
                        bytes: named.bytes,
                    });
                }
                Err(why) => {
                    unfit.push(JobInputsError::CannotMount { path: named.path.display().to_string(), why });
                }
            }
        }
        if placed.len() > MOST_FILES {
            unfit.push(JobInputsError::TooMany(placed.len()));
        }
        let stdin = kept.stdin.map(|bytes| MountedFile {
            key: "stdin".to_owned(),
            path: STDIN_PATH.to_owned(),
            bytes,
        });
        placed.extend(stdin);
        let working_dir = is_relative.then(|| working_dir.display().to_string());
        let materials = Self { arguments: Value::from(arguments).to_string(), placed, working_dir };
        unfit.extend(materials.too_large());
        if unfit.is_empty() { Ok(materials) } else { Err(unfit) }
    }

    fn too_large(&self) -> Option<JobInputsError> {
        let sizes = || self.secret_entries().map(|(key, bytes)| (key, bytes.len()));
        let bytes = sizes().map(|(_, size)| size).sum();
        let (key, of_largest) = sizes().max_by_key(|(_, size)| *size)?;
        let path = |placed: &&MountedFile| placed.key == key;
        let largest = match self.placed.iter().find(path) {
            Some(placed) if placed.key == "stdin" => "standard input".to_owned(),
            Some(placed) => placed.path.clone(),
            None => "the command line".to_owned(),
        };
        (bytes > MAX_SECRET_BYTES).then_some(JobInputsError::TooLarge { bytes, largest, of_largest })
    }

    /// Returns the arguments as the pods read them.
    #[must_use]
    pub fn arguments(&self) -> &str {
        &self.arguments
    }

    /// Returns the keys and values of the Secret.
    pub fn secret_entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let files = self.placed.iter().map(|placed| (&*placed.key, &*placed.bytes));
        std::iter::once(("arguments", self.arguments.as_bytes())).chain(files)
    }

    /// Returns the keys and their mount paths.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.placed.iter().map(|placed| (&*placed.key, &*placed.path));
        std::iter::once(("arguments", ARGUMENTS_PATH)).chain(files)
    }

    /// Returns the working directory of the program, if it needs one.
    pub(crate) fn working_dir(&self) -> Option<&str> {
        self.working_dir.as_deref()
    }

    /// Returns the field `data` of the Secret.
    pub(crate) fn secret_data(&self) -> Value {
        self.secret_entries()
            .map(|(key, bytes)| (key.to_owned(), Value::from(STANDARD.encode(bytes))))
            .collect::<Map<_, _>>()
            .into()
    }

    /// Returns the fields `stringData` and `data` of the Secret for people: text stays readable.
    pub(crate) fn readable_secret_data(&self) -> (Value, Value) {
        let (mut texts, mut others) = (Map::new(), Map::new());
        for (key, bytes) in self.secret_entries() {
            match std::str::from_utf8(bytes) {
                Ok(text) => texts.insert(key.to_owned(), text.into()),
                Err(_) => others.insert(key.to_owned(), STANDARD.encode(bytes).into()),
            };
        }
        (texts.into(), others.into())
    }

    /// Returns a digest that tells the inputs of two commands apart. It is only 32 bits long (FNV-1a), because more people can
    /// read the Job: a longer digest would confirm a guessed password.
    #[must_use]
    pub fn digest(&self) -> String {
        let add = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let value = |hash, (key, bytes): (&str, &[u8])| {
            let length = bytes.len().to_be_bytes();
            key.as_bytes().iter().chain(&length).chain(bytes).fold(hash, add)
        };
        format!("{:08x}", self.secret_entries().fold(0x811c_9dc5, value))
    }
}

/// Returns the path of a file in a pod, without symbolic links.
fn place(path: &Path, working_dir: &Path, taken: &[&str]) -> Result<String, &'static str> {
    let mut place = if path.is_absolute() { PathBuf::from("/") } else { working_dir.to_owned() };
    let mut is_down = path.is_absolute();
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                is_down = true;
                place.push(name);
            }
            Component::ParentDir if is_down => {
                return Err("write the path without `..` after a directory name");
            }
            Component::ParentDir => _ = place.pop(),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let text = place.to_str().ok_or("the path is not UTF-8")?;
    if text.contains(':') || text.chars().any(char::is_control) {
        return Err("Kubernetes rejects a path with a colon or a control character");
    }
    let is_in = |room: &&str| place.starts_with(room) || Path::new(room).starts_with(&place);
    if FORBIDDEN.iter().any(&is_in) {
        return Err("pods cannot mount files there: copy the file to another directory");
    }
    if taken.iter().any(is_in) {
        return Err("the path is in a --volume or contains a --volume: copy the file to another directory");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use seawall_load::input_files::CapturedFile;

    use super::*;

    fn of(files: &[(&str, usize)], arguments: &[&str]) -> Result<JobInputs, Vec<JobInputsError>> {
        let named =
            |(path, size): &(&str, usize)| CapturedFile { path: path.into(), bytes: vec![b'x'; *size] };
        let kept = CapturedInputs { files: files.iter().map(named).collect(), stdin: None };
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        JobInputs::new(&arguments, kept, Path::new("/srv/load/it"), &["/records"])
    }

    #[test]
    fn each_file_stands_where_the_command_line_says() {
        let materials = of(&[("a", 1), ("./a", 1), ("../b/c", 2), ("/etc/d", 3)], &["attack"]).unwrap();
        let mounts: Vec<_> = materials.mounts().collect();
        let expected = [
            ("arguments", ARGUMENTS_PATH),
            ("file-0", "/srv/load/it/a"),
            ("file-1", "/srv/load/b/c"),
            ("file-2", "/etc/d"),
        ];
        assert_eq!(mounts, expected);
        assert_eq!(materials.working_dir(), Some("/srv/load/it"));
        assert_eq!(of(&[("/etc/d", 3)], &[]).unwrap().working_dir(), None, "who needs no directory has none");
        assert_eq!(materials.secret_entries().next(), Some(("arguments", &br#"["attack"]"#[..])));
    }

    #[test]
    fn what_cannot_be_mounted_is_refused_with_the_reason_all_at_once() {
        for (path, why) in [
            ("/proc/self/fd/3", "pods cannot mount files there"),
            ("/dev/stdin", "pods cannot mount files there"),
            ("/sys/x", "pods cannot mount files there"),
            ("/seawall", "pods cannot mount files there"),
            ("/run/seawall/arguments", "pods cannot mount files there"),
            ("/run", "pods cannot mount files there"),
            ("/records/x", "is in a --volume"),
            ("a/../b", "without `..`"),
            ("a:b", "a colon"),
        ] {
            let told = of(&[(path, 1), ("fine", 1)], &[]).unwrap_err();
            assert!(
                matches!(&told[..], [JobInputsError::CannotMount { path: named, why: told }] if named == path && told.contains(why)),
                "{told:?}"
            );
        }
        assert_eq!(of(&[("/proc/a", 1), ("/sys/b", 1)], &[]).unwrap_err().len(), 2);
    }

    /// The limit applies to the plain values: a Secret of 1 MiB is 1.4 MB of JSON.
    #[test]
    fn more_than_a_secret_takes_is_refused_beforehand_with_what_is_how_large() {
        let arguments = r#"["x"]"#.len();
        assert!(of(&[("/a", 1000), ("/b", MAX_SECRET_BYTES - 1000 - arguments)], &["x"]).is_ok());
        let told = of(&[("/a", 1000), ("/b", MAX_SECRET_BYTES - 999 - arguments)], &["x"]).unwrap_err();
        let told = told[0].to_string();
        assert!(told.contains("have 1048577 bytes") && told.contains("takes at most 1048576"), "{told}");
        assert!(
            told.ends_with(&format!("the largest is /b with {}", MAX_SECRET_BYTES - 999 - arguments)),
            "{told}"
        );
        let long = "x".repeat(MAX_SECRET_BYTES);
        assert!(of(&[], &[&long]).unwrap_err()[0].to_string().contains("the largest is the command line"));
    }

    #[test]
    fn so_many_files_that_no_pod_would_mount_them_are_refused() {
        let names: Vec<_> = (0..=MOST_FILES).map(|number| format!("/bodies/{number}")).collect();
        let files: Vec<_> = names.iter().map(|name| (&**name, 1)).collect();
        assert_eq!(of(&files, &[]).unwrap_err(), [JobInputsError::TooMany(MOST_FILES + 1)]);
    }

    #[test]
    fn standard_input_is_a_file_of_pods() {
        let kept = CapturedInputs { files: Vec::new(), stdin: Some(b"GET http://a/\n".to_vec()) };
        let materials = JobInputs::new(&[], kept, Path::new("/"), &[]).unwrap();
        assert_eq!(materials.mounts().last(), Some(("stdin", STDIN_PATH)));
    }

    #[test]
    fn a_digest_is_short_and_tells_materials_apart() {
        let digests = [of(&[("/a", 1)], &[]), of(&[("/a", 2)], &[]), of(&[("/a", 1)], &["x"])]
            .map(|it| it.unwrap().digest());
        assert!(digests.iter().all(|digest| digest.len() == 8));
        assert!(digests[0] != digests[1] && digests[0] != digests[2] && digests[1] != digests[2]);
        assert_eq!(digests[0], of(&[("/a", 1)], &[]).unwrap().digest());
    }

    #[test]
    fn what_is_text_stays_text_where_people_read_it() {
        let kept = CapturedInputs {
            files: vec![CapturedFile { path: "/b".into(), bytes: vec![0xff] }],
            stdin: None,
        };
        let materials = JobInputs::new(&[], kept, Path::new("/"), &[]).unwrap();
        assert_eq!(
            materials.readable_secret_data(),
            (serde_json::json!({"arguments": "[]"}), serde_json::json!({"file-0": "/w=="}))
        );
    }
}
