//! Passwords and PEM texts.

use zeroize::Zeroizing;

/// Password. It is erased from memory when the value is dropped. As in cosign, a password can be
/// empty.
pub type Password = Zeroizing<String>;

/// Returns PEM text with LF line ends, as written by OpenSSL and Go.
pub(crate) fn pem_text(tag: &str, contents: &[u8]) -> String {
    pem::encode_config(
        &pem::Pem::new(tag, contents),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}
