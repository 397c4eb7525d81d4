//! Private keys: generated, stored in cosign's encrypted files, and used to sign.

use std::fmt;

use aws_lc_rs::{
    digest::{Digest, SHA256},
    encoding::AsDer as _,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use bundle_core::diagnostic::{Finding, codes};
use zeroize::Zeroizing;

use super::{
    LONGEST_FILE, P256, RSA,
    encrypted::{self, DecryptError},
    names,
    public::PublicKey,
    text::{Password, pem_text},
    unsupported,
};

const TAG: &str = "ENCRYPTED SIGSTORE PRIVATE KEY";
/// PEM label of private keys that cosign wrote before version 2.
const OLD_TAG: &str = "ENCRYPTED COSIGN PRIVATE KEY";
const ED25519_OID: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// Type of a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyKind {
    /// ECDSA on P-256 with SHA-256: cosign's default.
    #[default]
    EcdsaP256,
    /// Ed25519.
    Ed25519,
}

/// Generated key pair, as the files `cosign.key` and `cosign.pub`.
pub struct KeyPairFiles {
    /// Encrypted private key: PEM text.
    pub private_pem: Zeroizing<String>,
    /// Public key: PEM text.
    pub public_pem: String,
    /// Public key.
    pub public: PublicKey,
}

impl fmt::Debug for KeyPairFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPairFiles")
            .field("public", &self.public.id())
            .finish_non_exhaustive()
    }
}

pub(super) enum Pair {
    EcdsaP256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A private key that can sign.
pub struct PrivateKey {
    pair: Pair,
    public: PublicKey,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("public", &self.public.id())
            .finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// Returns the public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs `message`. The key hashes `message` if the algorithm requires a hash.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signature = match &self.pair {
            Pair::EcdsaP256(pair) => pair.sign(&SystemRandom::new(), message),
            Pair::Ed25519(pair) => pair.try_sign(message),
        };
        signature.ok().map(|signature| signature.as_ref().to_vec())
    }

    /// Signs content with this sha256. Returns `None` for Ed25519, which signs the content instead
    /// of its digest.
    pub(crate) fn sign_digest(&self, sha256: &[u8]) -> Option<Vec<u8>> {
        let Pair::EcdsaP256(pair) = &self.pair else {
            return None;
        };
        let digest = Digest::import_less_safe(sha256, &SHA256).ok()?;
        let signature = pair.sign_digest(&digest).ok()?;
        Some(signature.as_ref().to_vec())
    }

    /// Generates a key that is never written to a file.
    pub(crate) fn ephemeral(kind: KeyKind) -> Result<Self, Finding> {
        Self::new(new_pair(kind)?)
    }

    /// Generates a key that is not encrypted and not written to a file, for tests that need many
    /// keys.
    #[cfg(test)]
    pub(crate) fn unwritten(kind: KeyKind) -> Self {
        Self::ephemeral(kind).unwrap()
    }

    pub(super) fn pair(&self) -> &Pair {
        &self.pair
    }

    pub(super) fn new(pair: Pair) -> Result<Self, Finding> {
        let der = match &pair {
            Pair::EcdsaP256(pair) => pair.public_key().as_der(),
            Pair::Ed25519(pair) => pair.public_key().as_der(),
        };
        let der = der.map_err(|_| failed("cannot derive the public key"))?;
        Ok(Self {
            pair,
            public: PublicKey::from_der(der.as_ref())?,
        })
    }
}

fn new_pair(kind: KeyKind) -> Result<Pair, Finding> {
    let cannot = |_| failed("cannot generate the key");
    Ok(match kind {
        KeyKind::EcdsaP256 => Pair::EcdsaP256(
            EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(cannot)?,
        ),
        KeyKind::Ed25519 => Pair::Ed25519(Ed25519KeyPair::generate().map_err(cannot)?),
    })
}

/// Generates a key pair and encrypts the private key with `password`. The derivation of the
/// encryption key needs about 0.1 s and 64 MiB, so that guessing the password is slow.
pub fn generate(kind: KeyKind, password: &Password) -> Result<KeyPairFiles, Finding> {
    sealed(PrivateKey::ephemeral(kind)?, password)
}

/// Returns the key pair as files in the format of cosign.
pub(super) fn sealed(key: PrivateKey, password: &Password) -> Result<KeyPairFiles, Finding> {
    let PrivateKey { pair, public } = key;
    let pkcs8 = pkcs8_of(&pair)?;
    let sealed = encrypted::seal(pkcs8.as_ref(), password)
        .ok_or_else(|| failed("cannot encrypt the key"))?;
    Ok(KeyPairFiles {
        private_pem: Zeroizing::new(pem_text(TAG, &sealed)),
        public_pem: public.to_pem(),
        public,
    })
}

pub(super) fn pkcs8_of(pair: &Pair) -> Result<aws_lc_rs::pkcs8::Document, Finding> {
    let written = match pair {
        Pair::EcdsaP256(pair) => pair.to_pkcs8v1(),
        Pair::Ed25519(pair) => pair.to_pkcs8v1(),
    };
    written.map_err(|_| failed("cannot encode the key"))
}

/// Decrypts a private key file of [`generate`] or cosign.
pub fn load_private(pem: &str, password: &Password) -> Result<PrivateKey, Finding> {
    if pem.len() > LONGEST_FILE {
        return Err(unreadable("it is longer than 64 KiB"));
    }
    let blocks = pem::parse_many(pem).map_err(|_| unreadable("its PEM encoding is damaged"))?;
    let [block] = blocks.as_slice() else {
        return Err(unreadable(if blocks.is_empty() {
            "it is not PEM"
        } else {
            "it has several PEM blocks, but must have one"
        }));
    };
    match block.tag() {
        TAG | OLD_TAG => {}
        "PUBLIC KEY" => {
            return Err(unreadable(
                "it is a public key, but a private key is required",
            ));
        }
        "PRIVATE KEY" | "EC PRIVATE KEY" | "RSA PRIVATE KEY" => {
            return Err(unreadable("it is an unencrypted private key")
                .hint("encrypt it: kubectl bundle keys import --key FILE"));
        }
        "ENCRYPTED PRIVATE KEY" => {
            return Err(
                unreadable("it is encrypted as PKCS#8, not as cosign requires")
                    .hint("convert it: openssl pkey -in FILE | kubectl bundle keys import --key -"),
            );
        }
        tag => {
            return Err(unreadable(&format!(
                "it is a PEM block of type `{}`",
                tag.chars().take(40).collect::<String>()
            )));
        }
    }
    let pkcs8 = encrypted::open(block.contents(), password).map_err(|why| match why {
        DecryptError::Unreadable(why) => unreadable(why),
        DecryptError::WrongPassword => Finding::error(
            codes::trust::WRONG_PASSWORD,
            "cannot decrypt the private key: the password is wrong, or the file is damaged",
        )
        .hint("pass the password that was used to generate the key"),
    })?;
    PrivateKey::new(read_pkcs8(&pkcs8)?)
}

pub(super) fn read_pkcs8(der: &[u8]) -> Result<Pair, Finding> {
    let damaged = |_| unreadable("the decrypted key is damaged");
    if names(der, P256) {
        return EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der)
            .map(Pair::EcdsaP256)
            .map_err(damaged);
    }
    if names(der, ED25519_OID) {
        return Ed25519KeyPair::from_pkcs8(der)
            .map(Pair::Ed25519)
            .map_err(damaged);
    }
    let why = if names(der, RSA) {
        Some("it is an RSA key, which is supported only for verification")
    } else {
        unsupported(der)
    };
    Err(match why {
        Some(why) => Finding::error(
            codes::trust::KEY_UNSUPPORTED,
            format!("the private key is not supported: {why}"),
        )
        .hint("generate an ECDSA P-256 or Ed25519 key: kubectl bundle keys generate"),
        None => unreadable("the type of the decrypted key is unknown"),
    })
}

pub(super) fn unreadable(why: &str) -> Finding {
    Finding::error(
        codes::trust::KEY_UNREADABLE,
        format!("invalid private key: {why}"),
    )
    .hint("a private key is PEM that begins with -----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----; `kubectl bundle keys generate` creates a pair")
}

pub(super) fn failed(why: &str) -> Finding {
    Finding::error(codes::trust::SIGNING_FAILED, why)
}
