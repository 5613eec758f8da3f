//! Stores the keys with which all traffic threads sign session tokens. The module rotates the keys, and saves them in a file so
//! that tokens survive a restart.
//!
//! The agent writes the file only after it has signed a token, so a check of the configuration writes no file.
//!
//! Without a writable file, a restart invalidates all tokens. The SDK for Rust then fails until the granted lifetime of its token
//! ends. To prevent this, set `aws.imds.tokenKeyFile`. Without this setting, tokens live only for minutes by default. If the wall
//! clock jumps forward beyond a token's expiry time, the token also becomes invalid, with or without the file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use arc_swap::{ArcSwap, Guard};
use rustix::rand::{GetRandomFlags, getrandom};
use seawall_core::{Clock, Secret, disk_thread, file};
use seawall_protocols::aws::session_token::KEY_LENGTH;
use seawall_protocols::aws::{TokenSigningKeys, UnixTime};
use tokio::sync::Notify;

/// The largest key file that the agent reads, in bytes.
const LARGEST: usize = 1024;

/// The interval at which the agent checks if a key rotation is due.
const LOOK: Duration = Duration::from_secs(3600);

/// The current signing keys.
#[derive(Debug)]
pub(super) struct TokenKeyStore {
    keys: ArcSwap<TokenSigningKeys>,
    file: Option<PathBuf>,
    clock: Clock,
    is_used: AtomicBool,
    used: Notify,
}

impl TokenKeyStore {
    /// Loads the keys from the file. Creates new keys if the file does not exist or contains no valid keys.
    ///
    /// # Errors
    /// The agent cannot read the existing file, or the kernel provides no random bytes.
    pub(super) fn open(file: Option<&Path>, clock: &Clock) -> anyhow::Result<Self> {
        let kept = file.map(read).transpose()?.flatten();
        let is_used = kept.is_some();
        let now = UnixTime::from(clock.wall_time());
        let keys = match kept {
            Some(keys) if !keys.is_rotation_due(now) => keys,
            Some(keys) => keys.rotated(random()?, now),
            None => TokenSigningKeys::with_first_key(random()?, now),
        };
        Ok(Self {
            keys: ArcSwap::from_pointee(keys),
            file: file.map(Path::to_owned),
            clock: clock.clone(),
            is_used: AtomicBool::new(is_used),
            used: Notify::new(),
        })
    }

    /// Returns the current keys with one atomic read.
    pub(super) fn current_keys(&self) -> Guard<Arc<TokenSigningKeys>> {
        self.keys.load()
    }

    /// Records that the agent has signed a token. After the first call, [`Self::run`] writes the keys to the file.
    pub(super) fn mark_used(&self) {
        if !self.is_used.load(Ordering::Relaxed) && !self.is_used.swap(true, Ordering::Relaxed) {
            self.used.notify_one();
        }
    }

    /// Writes the keys to the file and rotates them when due. Runs forever on the control thread.
    pub(super) async fn run(self: Arc<Self>) {
        if !self.is_used.load(Ordering::Relaxed) {
            self.used.notified().await;
        }
        self.write().await;
        loop {
            self.clock.sleep(LOOK).await;
            if self.replace_in_time() {
                self.write().await;
            }
        }
    }

    /// Rotates the keys if a rotation is due. Returns true if a rotation was due, even if the rotation failed because no random
    /// bytes were available.
    fn replace_in_time(&self) -> bool {
        let now = UnixTime::from(self.clock.wall_time());
        let kept = self.keys.load().to_bytes();
        // The function rotates a copy of the keys, because threads sign with the current keys until the function has stored the
        // new keys.
        let Ok(keys) = TokenSigningKeys::from_bytes(kept.expose()) else { return false };
        if !keys.is_rotation_due(now) {
            return false;
        }
        match random() {
            Ok(bytes) => self.keys.store(Arc::new(keys.rotated(bytes, now))),
            Err(error) => {
                tracing::warn!(%error, "cannot replace the signing key of IMDS session tokens; the old key stays in use");
            }
        }
        true
    }

    /// Writes the file on a separate thread. The control thread must not wait for the disk, because it renews the credentials of
    /// all pods.
    async fn write(&self) {
        let Some(path) = self.file.clone() else { return };
        let keys = self.keys.load_full();
        let written =
            disk_thread::run_with_timeout(move || write(&path, &keys).map_err(|error| error.to_string()))
                .await;
        if let (Err(error), Some(path)) = (written.flatten(), &self.file) {
            let path = path.display();
            tracing::warn!(%path, error, "cannot write aws.imds.tokenKeyFile; a restart of the agent invalidates IMDS session tokens");
        }
    }
}

/// Reads the keys. Returns `None` if the file does not exist or contains no valid keys.
fn read(path: &Path) -> anyhow::Result<Option<TokenSigningKeys>> {
    if !path.try_exists().unwrap_or(true) {
        return Ok(None);
    }
    let bytes = file::read_bytes(path, LARGEST)
        .map_err(|reason| anyhow::anyhow!("cannot read {}: {reason}", path.display()))
        .context("aws.imds.tokenKeyFile")?;
    let keys = TokenSigningKeys::from_bytes(bytes.expose());
    if keys.is_err() {
        tracing::warn!(path = %path.display(), "aws.imds.tokenKeyFile has no valid session token keys; the agent writes new keys");
    }
    Ok(keys.ok())
}

/// Writes the keys to a temporary file and renames it to `path`, so readers always see a complete file.
///
/// The function creates the file with permissions for its owner only. The temporary name is unique, because two agents can write
/// at the same time during an upgrade.
fn write(path: &Path, keys: &TokenSigningKeys) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", name_of_its_own()?));
    let written = write_new(&beside, keys).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // A leftover file would be an unmanaged copy of the keys.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write_new(path: &Path, keys: &TokenSigningKeys) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(keys.to_bytes().expose())?;
    file.sync_all()
}

fn name_of_its_own() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

fn random() -> anyhow::Result<Secret<[u8; KEY_LENGTH]>> {
    let mut bytes = Secret::new([0; KEY_LENGTH]);
    let read = getrandom(bytes.expose_mut(), GetRandomFlags::empty()).context("cannot get random bytes")?;
    anyhow::ensure!(read == KEY_LENGTH, "too few random bytes");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::TempDir::with_prefix("seawall-keys-").unwrap()
    }

    fn same(one: &TokenKeyStore, other: &TokenKeyStore) -> bool {
        one.current_keys().to_bytes().expose() == other.current_keys().to_bytes().expose()
    }

    #[tokio::test]
    async fn keys_outlive_the_agent_in_a_file_of_its_owner_alone() {
        let (folder, (clock, _hand)) = (folder(), Clock::manual());
        let path = folder.path().join("keys");
        let first = Arc::new(TokenKeyStore::open(Some(&path), &clock).unwrap());
        assert!(!path.exists(), "the agent writes no file before it has signed a token");
        first.mark_used();
        let keep = tokio::spawn(first.clone().run());
        while !path.exists() {
            tokio::task::yield_now().await;
        }
        keep.abort();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(same(&first, &TokenKeyStore::open(Some(&path), &clock).unwrap()));
        assert!(!same(&first, &TokenKeyStore::open(None, &clock).unwrap()));
    }

    /// Regression: two agents used the same temporary name, and each removed the file of the other.
    #[tokio::test]
    async fn two_agents_of_an_upgrade_write_beside_each_other() {
        let (folder, (clock, _hand)) = (folder(), Clock::manual());
        let path = folder.path().join("keys");
        let agents = [(); 2].map(|()| TokenKeyStore::open(Some(&path), &clock).unwrap());
        fs::write(path.with_extension("new"), "another's").unwrap();
        for agent in &agents {
            agent.write().await;
            assert!(same(agent, &TokenKeyStore::open(Some(&path), &clock).unwrap()));
        }
        assert_eq!(fs::read_to_string(path.with_extension("new")).unwrap(), "another's");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the agents leave no temporary file");
    }

    #[tokio::test]
    async fn an_old_key_is_replaced_and_its_tokens_are_still_good() {
        let (folder, (clock, hand)) = (folder(), Clock::manual());
        let path = folder.path().join("keys");
        let first = TokenKeyStore::open(Some(&path), &clock).unwrap();
        first.write().await;
        hand.advance(Duration::from_secs(25 * 3600));
        let second = TokenKeyStore::open(Some(&path), &clock).unwrap();
        assert!(!same(&first, &second));
        let before = first.current_keys().to_bytes().expose().len();
        assert!(second.current_keys().to_bytes().expose().len() > before, "the previous key is kept");
        assert!(first.replace_in_time());
        first.write().await;
        assert!(fs::read(&path).unwrap().len() > before);
    }

    #[tokio::test]
    async fn a_file_that_is_none_of_ours_is_written_anew_and_one_that_cannot_be_read_is_told() {
        let (folder, (clock, _hand)) = (folder(), Clock::manual());
        let path = folder.path().join("keys");
        fs::write(&path, [0xff; 96]).unwrap();
        let keys = TokenKeyStore::open(Some(&path), &clock).unwrap();
        keys.write().await;
        assert!(same(&keys, &TokenKeyStore::open(Some(&path), &clock).unwrap()));
        let error = TokenKeyStore::open(Some(folder.path()), &clock).unwrap_err();
        assert!(format!("{error:#}").contains("aws.imds.tokenKeyFile"), "{error:#}");
    }
}
