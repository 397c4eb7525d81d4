//! Public keys. They are parsed from PEM, compared by their DER encoding, and used to verify
//! signatures.

use aws_lc_rs::{
    digest,
    encoding::{AsDer, PublicKeyX509Der},
    rsa,
    signature::{
        ECDSA_P256_SHA256_ASN1, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
        VerificationAlgorithm,
    },
};
use bundle_core::{
    diagnostic::{Finding, codes},
    policy::KeyId,
};
use sha2::{Digest as _, Sha256};

use super::{LONGEST_FILE, P256, RSA, names, unsupported};
use crate::dsse;

/// DER of a P-256 SubjectPublicKeyInfo up to its uncompressed point of 65 bytes.
const P256_PREFIX: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// DER of an Ed25519 SubjectPublicKeyInfo up to its 32 bytes.
const ED25519_PREFIX: &[u8] = &[
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
const ED25519_NAME: &str = "Ed25519";
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A public key that can verify.
#[derive(Clone, Debug)]
pub struct PublicKey {
    der: Vec<u8>,
    id: KeyId,
    algorithm: &'static str,
    parsed: ParsedPublicKey,
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}
impl Eq for PublicKey {}

impl PublicKey {
    /// Parses PEM text with exactly one public key.
    pub fn parse(pem: &str) -> Result<Self, Finding> {
        if pem.len() > LONGEST_FILE {
            return Err(unreadable("it is longer than 64 KiB"));
        }
        let blocks = pem::parse_many(pem).map_err(|_| unreadable("its PEM encoding is damaged"))?;
        // `parse_many` ignores a block that has no end, but another parser may accept such a block.
        // Therefore the beginnings of blocks are counted.
        let begun = pem.matches("-----BEGIN").count();
        let block = match blocks.as_slice() {
            [_] if begun > 1 => return Err(unreadable("a PEM block begins inside of another one")),
            [block] => block,
            [] => return Err(unreadable("it is not PEM")),
            blocks => {
                return Err(unreadable(&format!(
                    "it has {} PEM blocks, but must have one",
                    blocks.len()
                )));
            }
        };
        match block.tag() {
            "PUBLIC KEY" => Self::from_der(block.contents()),
            "CERTIFICATE" => Err(unreadable(
                "it is a certificate, but a public key is required",
            )),
            tag if tag.contains("PRIVATE") => Err(unreadable(
                "it is a private key, but a public key is required; keep the private key secret",
            )),
            tag => Err(unreadable(&format!(
                "it is a PEM block of type `{}`",
                tag.chars().take(40).collect::<String>()
            ))),
        }
    }

    /// Parses the DER encoding (SubjectPublicKeyInfo).
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, Finding> {
        let parsed = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            ParsedPublicKey::new(algorithm, key)
                .map_err(|_| unreadable("its parameters are invalid"))
        };
        let (algorithm, parsed) = if let Some(point) = der
            .strip_prefix(P256_PREFIX)
            .filter(|point| point.len() == 65)
        {
            ("ECDSA P-256", parsed(&ECDSA_P256_SHA256_ASN1, point)?)
        } else if let Some(key) = der
            .strip_prefix(ED25519_PREFIX)
            .filter(|key| key.len() == 32)
        {
            if is_weak(key) {
                return Err(refused(
                    "it is a weak Ed25519 key, for which signatures can be forged",
                ));
            }
            (ED25519_NAME, parsed(&ED25519, key)?)
        } else if names(der, RSA) {
            let usual = check_rsa(der)?;
            if usual != der {
                return Err(unreadable("it is an RSA key with a non-standard encoding"));
            }
            ("RSA", parsed(&RSA_PKCS1_2048_8192_SHA256, der)?)
        } else if names(der, P256) {
            return Err(unreadable(
                "it is a P-256 key that is not in the uncompressed encoding",
            ));
        } else {
            return Err(match unsupported(der) {
                Some(why) => refused(why),
                None => unreadable("its algorithm is unknown"),
            });
        };
        Ok(Self {
            id: KeyId::new(dsse::encode(&Sha256::digest(der))),
            der: der.to_vec(),
            algorithm,
            parsed,
        })
    }

    /// Returns the key ID, which Sigstore bundles contain as the key hint.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// Returns the name of the algorithm: `ECDSA P-256`, `Ed25519` or `RSA`.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// Returns the PEM text with LF line ends.
    pub fn to_pem(&self) -> String {
        super::text::pem_text("PUBLIC KEY", &self.der)
    }

    /// Returns the DER encoding.
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns `true` for Ed25519, which signs the content itself instead of its digest.
    pub fn needs_content(&self) -> bool {
        self.algorithm == ED25519_NAME
    }

    /// Returns `true` if `signature` over content with this sha256 is valid. Always `false` for
    /// Ed25519, which needs the content.
    pub(crate) fn verifies_digest(&self, sha256: &[u8], signature: &[u8]) -> bool {
        digest::Digest::import_less_safe(sha256, &digest::SHA256)
            .is_ok_and(|digest| self.parsed.verify_digest_sig(&digest, signature).is_ok())
    }

    /// Returns `true` if `signature` over `message` is valid.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.parsed.verify_sig(message, signature).is_ok()
    }
}

/// Returns `true` for an Ed25519 key of small order, for which signatures can be created without
/// the private key. Also returns `true` for a key with a non-canonical encoding, because every key
/// must have exactly one encoding.
fn is_weak(key: &[u8]) -> bool {
    const HALF: [u8; 31] = [
        0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
        0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc,
        0x05,
    ];
    const OTHER_HALF: [u8; 31] = [
        0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
        0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03,
        0x7a,
    ];
    let [first, rest @ ..] = key else { return true };
    // Removes the highest bit, which is the sign of the x coordinate. All other bits are the y
    // coordinate.
    let mut rest = rest.to_vec();
    if let Some(last) = rest.last_mut() {
        *last &= 0x7f;
    }
    let none = rest.iter().all(|byte| *byte == 0);
    let full = rest
        .split_last()
        .is_some_and(|(last, middle)| *last == 0x7f && middle.iter().all(|byte| *byte == 0xff));
    (none && *first <= 1)
        || (full && *first >= 0xec)
        || (*first == 0x26 && rest == HALF)
        || (*first == 0xc7 && rest == OTHER_HALF)
}

/// Returns the canonical encoding of an RSA key, or an error if the key is too short or too long.
fn check_rsa(der: &[u8]) -> Result<Vec<u8>, Finding> {
    let key = rsa::PublicKey::from_der(der).map_err(|_| {
        refused("it is an RSA key that is damaged, or that does not have 2048 to 8192 bits")
    })?;
    let bits = key.modulus_len() * 8;
    if RSA_BITS.contains(&bits) {
        let usual = AsDer::<PublicKeyX509Der<'_>>::as_der(&key)
            .map_err(|_| refused("it is an RSA key that cannot be encoded"))?;
        Ok(usual.as_ref().to_vec())
    } else {
        Err(refused(&format!(
            "it is an RSA key of about {bits} bits, but must have 2048 to 8192"
        )))
    }
}

pub(super) fn unreadable(why: &str) -> Finding {
    Finding::error(
        codes::trust::KEY_UNREADABLE,
        format!("invalid public key: {why}"),
    )
    .hint("a public key is PEM that begins with -----BEGIN PUBLIC KEY-----; `kubectl bundle keys generate` creates a pair")
}

fn refused(why: &str) -> Finding {
    Finding::error(
        codes::trust::KEY_UNSUPPORTED,
        format!("the public key is not supported: {why}"),
    )
    .hint("use an ECDSA P-256 or Ed25519 key (or RSA of 2048 to 8192 bits)")
}
