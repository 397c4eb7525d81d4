//! Random values, and the code challenge of PKCE (RFC 7636).

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bundle_core::diagnostic::{Finding, codes};

/// Returns 256 random bits as text.
pub(super) fn random() -> Result<String, Finding> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| {
        Finding::error(
            codes::usage::NO_RESOURCES,
            "the operating system returned no random numbers",
        )
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns the code challenge for a code verifier.
pub(super) fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_matches_the_example_of_rfc_7636() {
        assert_eq!(
            challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
        assert_eq!(random().unwrap().len(), 43);
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
