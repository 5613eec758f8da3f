//! `--control-socket PATH`: a Unix socket over which a running attack is steered, a line per command and a line per answer.
//!
//! Only the user who started the attack may connect: the socket has mode 0600 from its first instant. [`command`] says what
//! a line means. Whoever connects can hold up nobody but others who connect: clients, their lines and their silence are
//! bounded, and the senders see a command as they see a key of the live view.

mod command;

use std::fs::{Metadata, symlink_metadata};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io, thread};

use anyhow::{Context as _, bail};
use rustix::fs::{Mode, fchmod};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use seawall_load::control::Control;

pub(crate) use self::command::{CommandHandler, ControlSocketCommand};

/// Longest line: no command is a tenth of it.
const LONGEST: u64 = 256;

/// Clients at once; one more is told so.
const CLIENTS: usize = 8;

/// A client that is silent for this long is disconnected.
const SILENCE: Duration = Duration::from_secs(60);

/// For a client to take an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A socket that nobody is served on yet. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// The identity of the created socket, so that no other file is removed.
    made: (u64, u64),
}

impl ControlSocket {
    /// Makes the socket. A socket at which nobody listens any more is replaced; everything else that is there stays.
    ///
    /// # Errors
    /// The path and what is wrong with it.
    pub(crate) fn bind(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("--control-socket: cannot listen at {}", path.display());
        remove_stale_socket(path).with_context(cannot)?;
        let listener = listen(path);
        let made = symlink_metadata(path).map(|made| identity(&made));
        Ok(Self {
            listener: Some(listener.with_context(cannot)?),
            path: path.to_owned(),
            made: made.with_context(cannot)?,
        })
    }

    /// Serves until the program ends, with so many clients of a closed loop at most.
    pub(crate) fn start(&mut self, control: Control, most_clients: usize) -> anyhow::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let hand = Arc::new(CommandHandler { control, max_concurrency: most_clients });
        let serve = move || accept_loop(&listener, &hand);
        thread::Builder::new()
            .name("control".into())
            .spawn(serve)
            .context("cannot serve --control-socket")?;
        Ok(())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if symlink_metadata(&self.path).is_ok_and(|there| identity(&there) == self.made) {
            // It is of no use any more, and no error of the attack.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A listener of mode 0600. Narrowed before it has a name, and Linux keeps that (`unix_bind` in net/unix/af_unix.c): who came
/// between `bind` and a later `chmod` would stay connected, and a umask is the whole program's.
fn listen(path: &Path) -> rustix::io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, CLIENTS as i32)?;
    Ok(socket.into())
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Removes a socket that an earlier program left behind.
fn remove_stale_socket(path: &Path) -> anyhow::Result<()> {
    let there = match symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        there => there?,
    };
    if !there.file_type().is_socket() {
        bail!("the path exists and is not a socket");
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("another program listens at the socket"),
    }
}

/// The strong count of `hand` beyond one is the number of clients.
fn accept_loop(listener: &UnixListener, hand: &Arc<CommandHandler>) {
    loop {
        let Ok((client, _)) = listener.accept() else {
            // Out of descriptors, most likely: the senders' connections have them. Some will be free again.
            thread::park_timeout(Duration::from_millis(100));
            continue;
        };
        let _ = client.set_read_timeout(Some(SILENCE)).and(client.set_write_timeout(Some(PATIENCE)));
        if Arc::strong_count(hand) > CLIENTS {
            // Who is gone does not hear it.
            let _ = answer(
                &client,
                &format!("error: {CLIENTS} clients are connected, which is the limit: disconnect one client"),
            );
            continue;
        }
        let hand = Arc::clone(hand);
        // Without a thread for it the client sees its connection end.
        let _ = thread::Builder::new().name("control client".into()).spawn(move || serve(&client, &hand));
    }
}

/// Until the client leaves, says nothing for too long, or says too much.
fn serve(client: &UnixStream, hand: &CommandHandler) -> io::Result<()> {
    let mut lines = BufReader::new(client);
    loop {
        let mut line = Vec::new();
        if (&mut lines).take(LONGEST + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() as u64 > LONGEST {
            return answer(client, &format!("error: the line is too long: expected at most {LONGEST} bytes"));
        }
        answer(client, &hand.run_command(&String::from_utf8_lossy(&line)))?;
    }
}

fn answer(mut client: &UnixStream, text: &str) -> io::Result<()> {
    client.write_all(format!("{text}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_else_may_connect_and_nothing_is_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let helm = ControlSocket::bind(&path).unwrap();
        assert_eq!(symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(helm);
        assert!(symlink_metadata(&path).is_err());
    }

    #[test]
    fn a_socket_in_use_and_what_is_no_socket_stay_where_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |path: &Path| format!("{:#}", ControlSocket::bind(path).unwrap_err());
        let path = directory.path().join("control");
        let helm = ControlSocket::bind(&path).unwrap();
        assert!(refused(&path).ends_with("another program listens at the socket"), "{}", refused(&path));
        assert!(UnixStream::connect(&path).is_ok());
        drop(helm);
        fs::write(&path, "mine").unwrap();
        assert!(refused(&path).ends_with("the path exists and is not a socket"));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert!(refused(&directory.path().join("no").join("control")).contains("cannot listen at"));
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced_and_what_replaced_ours_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        // A listener that is dropped leaves its file.
        drop(UnixListener::bind(&path).unwrap());
        let helm = ControlSocket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(helm);
        assert!(path.exists());
    }
}
