//! TLS provider of the process, installed before the first connection.

/// Installs the provider. A second call has no effect. The provider is not installed at the start,
/// because `--help` needs no cryptography.
pub(crate) fn install() {
    // The call fails only if a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
