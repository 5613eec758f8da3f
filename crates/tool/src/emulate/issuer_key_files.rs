//! `seawall emulate issuer`: a key and its published set, as two files.

use std::path::PathBuf;

use anyhow::Context as _;
use seawall_emulator::keys::{Algorithm, SigningKey};

use super::{files, print_line};

/// Flags of `seawall emulate issuer`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  seawall emulate issuer --directory ./issuer
  seawall emulate token --key ./issuer/key.pem --namespace reef --service-account coral --audience reef.svc.id.goog
  seawall emulate google --jwks ./issuer/jwks.json --audience reef.svc.id.goog --allow-all

The key is PKCS#8, as kube-apiserver --service-account-signing-key-file reads it.")]
pub(super) struct EmulateIssuerArgs {
    /// Directory for key.pem (mode 0600) and jwks.json; created if missing
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// Kind of key
    #[arg(long, value_enum, default_value_t = IssuerAlgorithm::Rs256)]
    algorithm: IssuerAlgorithm,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum IssuerAlgorithm {
    /// RSA of 2048 bits
    Rs256,
    /// ECDSA on P-256
    Es256,
}

pub(super) fn create_issuer_files(args: &EmulateIssuerArgs) -> anyhow::Result<()> {
    let (key_file, jwks_file) = (args.directory.join("key.pem"), args.directory.join("jwks.json"));
    // Tokens in use would stop verifying without a word.
    anyhow::ensure!(
        !key_file.exists(),
        "{} exists: delete it, or give another --directory",
        key_file.display()
    );
    files::create_secret_directory(&args.directory)?;
    let algorithm = match args.algorithm {
        IssuerAlgorithm::Rs256 => Algorithm::Rs256,
        IssuerAlgorithm::Es256 => Algorithm::Es256,
    };
    let key = SigningKey::generate(algorithm).context("cannot make a key")?;
    files::write_file_atomically(
        &key_file,
        key.to_pem().context("cannot write the key")?.expose(),
        files::SECRET_FILE_MODE,
    )?;
    files::write_file_atomically(&jwks_file, &format!("{}\n", key.jwks()), files::PUBLIC_FILE_MODE)?;
    print_line(&format!("key       {}", key_file.display()))?;
    print_line(&format!("key set   {}", jwks_file.display()))
}
