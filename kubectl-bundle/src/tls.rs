//! The one TLS provider of the process, installed by whoever is about to open the first connection.

/// Installs it; a second call changes nothing. Not done at start: `--help` needs no cryptography.
pub(crate) fn install() {
    // An error only says that one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
