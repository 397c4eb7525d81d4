//! TLS provider of the process, installed before the first connection.

/// Installs the provider; a second call has no effect. Not installed at the start, as `--help`
/// needs no cryptography.
pub(crate) fn install() {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
