//! Keys for signing and verifying: P-256 and Ed25519, and RSA for verifying only.

mod encrypted;
mod plain;
mod private;
mod public;
#[cfg(test)]
mod tests;
mod text;

pub use plain::{export, import};
pub use private::{KeyKind, KeyPairFiles, PrivateKey, generate, load_private};
pub use public::PublicKey;
pub use text::Password;
pub(crate) use text::pem_text;

/// Maximum length of a key file, in bytes.
const LONGEST_FILE: usize = 64 * 1024;

/// Returns a text for known key algorithms that are not supported, such as `it is a DSA key, which
/// is too weak`. Returns `None` for all other algorithms. `der` is a SubjectPublicKeyInfo or a
/// PKCS#8 key.
fn unsupported(der: &[u8]) -> Option<&'static str> {
    const KNOWN: &[(&[u8], &str)] = &[
        (
            &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
            "it is an ECDSA P-384 key, for which signing tools use different hashes",
        ),
        (
            &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23],
            "it is an ECDSA P-521 key, for which signing tools use different hashes",
        ),
        (
            &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x21],
            "it is an ECDSA P-224 key, which is too weak",
        ),
        (
            &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a],
            "it is a secp256k1 key, which signing tools do not support",
        ),
        (
            &[0x06, 0x03, 0x2b, 0x65, 0x71],
            "it is an Ed448 key, which signing tools do not support",
        ),
        (
            &[0x06, 0x03, 0x2b, 0x65, 0x6e],
            "it is an X25519 key, which cannot sign",
        ),
        (
            &[
                0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a,
            ],
            "it is an RSA-PSS key, which signing tools do not support",
        ),
        (
            &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01],
            "it is a DSA key, which is too weak",
        ),
    ];
    KNOWN
        .iter()
        .find(|(oid, _)| names(der, oid))
        .map(|(_, why)| *why)
}

/// Returns `true` if the algorithm identifier of the key contains the object identifier `oid`. The
/// algorithm identifier is in the first 40 bytes of `der`.
fn names(der: &[u8], oid: &[u8]) -> bool {
    der[..der.len().min(40)]
        .windows(oid.len())
        .any(|window| window == oid)
}

/// Object identifier of plain RSA keys.
const RSA: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
];
/// Object identifier of the curve P-256.
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
