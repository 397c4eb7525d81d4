//! The texts around keys: passwords, and PEM.

use zeroize::Zeroizing;

/// A password, wiped from memory when it is no longer needed. May be empty, as with cosign.
pub type Password = Zeroizing<String>;

/// PEM text with plain line ends, as OpenSSL and Go write it.
pub(crate) fn pem_text(tag: &str, contents: &[u8]) -> String {
    pem::encode_config(
        &pem::Pem::new(tag, contents),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}
