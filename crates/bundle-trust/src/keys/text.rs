//! Passwords and PEM texts.

use zeroize::Zeroizing;

/// Password, which is wiped from memory when the value is dropped. A password can be empty, as in
/// cosign.
pub type Password = Zeroizing<String>;

/// Returns PEM text with LF line ends, as written by OpenSSL and Go.
pub(crate) fn pem_text(tag: &str, contents: &[u8]) -> String {
    pem::encode_config(
        &pem::Pem::new(tag, contents),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}
