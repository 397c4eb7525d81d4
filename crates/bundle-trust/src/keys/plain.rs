//! Unencrypted private keys (PKCS#8 and SEC 1): import, and export on request.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use bundle_core::diagnostic::{Finding, codes};
use pem::Pem;
use zeroize::Zeroizing;

use super::private::{KeyPairFiles, Pair, PrivateKey, pkcs8_of, read_pkcs8, sealed, unreadable};
use super::text::{Password, pem_text};
use super::{LONGEST_FILE, load_private};

const PKCS8: &str = "PRIVATE KEY";
const SEC1: &str = "EC PRIVATE KEY";
/// Label of a PEM block that names the curve. OpenSSL writes this block before the [`SEC1`] block,
/// which also names the curve.
const SEC1_PARAMETERS: &str = "EC PARAMETERS";
/// Message for a trial signature with an imported key.
const TRIAL: &[u8] = b"trial";

/// Parses a private key in PKCS#8 or SEC 1, and encrypts it with `password` in the format of
/// cosign.
pub fn import(text: &str, password: &Password) -> Result<KeyPairFiles, Finding> {
    let key = PrivateKey::new(read(text)?)?;
    // If the private and the public part do not match, no signature that is made with this key is
    // valid.
    let holds = |signature: Vec<u8>| key.public().verifies(TRIAL, &signature);
    if !key.sign(TRIAL).is_some_and(holds) {
        return Err(unreadable("its private and public parts do not match"));
    }
    sealed(key, password)
}

/// Decrypts a private key in cosign's format and returns it as unencrypted PKCS#8.
pub fn export(text: &str, password: &Password) -> Result<Zeroizing<String>, Finding> {
    let key = load_private(text, password)?;
    let der = pkcs8_of(key.pair())?;
    Ok(Zeroizing::new(pem_text(PKCS8, der.as_ref())))
}

fn read(text: &str) -> Result<Pair, Finding> {
    if text.len() > LONGEST_FILE {
        return Err(unreadable("it is longer than 64 KiB"));
    }
    let blocks = pem::parse_many(text).map_err(|_| unreadable("its PEM encoding is damaged"))?;
    let mut blocks = blocks
        .into_iter()
        .filter(|block| block.tag() != SEC1_PARAMETERS);
    let (Some(block), None) = (blocks.next(), blocks.next()) else {
        return Err(unreadable("it is not PEM with exactly one key"));
    };
    if block.headers().iter().next().is_some() {
        return Err(encrypted("in the traditional format of OpenSSL"));
    }
    let tag = block.tag().to_owned();
    let der = Zeroizing::new(Pem::into_contents(block));
    match tag.as_str() {
        PKCS8 => read_pkcs8(&der),
        SEC1 => EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, &der)
            .map(Pair::EcdsaP256)
            .map_err(|_| {
                Finding::error(
                    codes::trust::KEY_UNSUPPORTED,
                    "the private key is not supported: it is an elliptic curve key that is damaged or not on curve P-256",
                )
                .hint("generate an ECDSA P-256 or Ed25519 key: kubectl bundle keys generate")
            }),
        "ENCRYPTED PRIVATE KEY" => Err(encrypted("as PKCS#8")),
        "ENCRYPTED SIGSTORE PRIVATE KEY" | "ENCRYPTED COSIGN PRIVATE KEY" => Err(unreadable(
            "the file is already encrypted as cosign requires; an import is not necessary",
        )
        .hint("use the file unchanged: kubectl bundle sign --key FILE")),
        "RSA PRIVATE KEY" | "DSA PRIVATE KEY" => Err(Finding::error(
            codes::trust::KEY_UNSUPPORTED,
            "the private key is not supported: signing keys are ECDSA P-256 or Ed25519",
        )
        .hint("generate a key: kubectl bundle keys generate")),
        _ => Err(unreadable("it is PEM, but not a private key")),
    }
}

fn encrypted(how: &str) -> Finding {
    unreadable(&format!("it is encrypted {how}, not as cosign requires")).hint(
        "decrypt it during the import: openssl pkey -in FILE | kubectl bundle keys import --key -",
    )
}

#[cfg(test)]
mod tests {
    use super::super::{KeyKind, generate};
    use super::*;

    fn password(text: &str) -> Password {
        Zeroizing::new(text.to_owned())
    }

    fn refusal(text: &str) -> String {
        let finding = import(text, &password("x")).unwrap_err();
        format!("{} {} {:?}", finding.code.id, finding.message, finding.hint)
    }

    #[test]
    fn exported_keys_can_be_imported() {
        for kind in [KeyKind::EcdsaP256, KeyKind::Ed25519] {
            let pair = generate(kind, &password("one")).unwrap();
            let plain = export(&pair.private_pem, &password("one")).unwrap();
            assert!(plain.starts_with("-----BEGIN PRIVATE KEY-----\n"));
            let again = import(&plain, &password("two")).unwrap();
            assert_eq!(again.public, pair.public);
            assert!(!again.private_pem.contains("BEGIN PRIVATE KEY"));
            let opened = load_private(&again.private_pem, &password("two")).unwrap();
            assert_eq!(*opened.public(), pair.public);
            assert!(export(&pair.private_pem, &password("two")).is_err());
        }
    }

    #[test]
    fn rejects_unsupported_plain_keys_with_specific_messages() {
        let pair = generate(KeyKind::EcdsaP256, &password("one")).unwrap();
        let plain = export(&pair.private_pem, &password("one")).unwrap();
        let block = |tag: &str| pem_text(tag, b"\x30\x03\x02\x01\x00");
        let old = format!(
            "-----BEGIN {SEC1}-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END {SEC1}-----\n"
        );
        for (text, why) in [
            (pair.private_pem.to_string(), "import is not necessary"),
            (pair.public_pem.clone(), "not a private key"),
            (format!("{}{}", *plain, *plain), "exactly one key"),
            (String::new(), "exactly one key"),
            ("x".repeat(70_000), "longer than 64 KiB"),
            (block("ENCRYPTED PRIVATE KEY"), "openssl pkey"),
            (old, "traditional format of OpenSSL"),
            (block("RSA PRIVATE KEY"), "BUNDLE-TRUST-009"),
            (block(SEC1), "BUNDLE-TRUST-009"),
            (block(PKCS8), "unknown"),
            (plain.replace("MIG", "MIH"), "BUNDLE-TRUST-008"),
        ] {
            let said = refusal(&text);
            assert!(said.contains(why), "{why}: {said}");
        }
    }
}
