//! Numbers that nobody can guess, and the proof that whoever asked for a code is who redeems it (RFC 7636).

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bundle_core::diagnostic::{Finding, codes};

/// A number of 256 bits, as text.
pub(super) fn random() -> Result<String, Finding> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| {
        Finding::error(
            codes::usage::NO_RESOURCES,
            "the system gives no random numbers",
        )
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// What is shown when a code is asked for, of what is shown when it is redeemed.
pub(super) fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        assert_eq!(
            challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
        assert_eq!(random().unwrap().len(), 43);
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
