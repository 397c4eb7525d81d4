//! Tests of key files that this crate or cosign wrote, and of key files that are rejected.

use proptest::prelude::*;
use zeroize::Zeroizing;

use super::*;

fn password(text: &str) -> Password {
    Zeroizing::new(text.to_owned())
}

#[test]
fn key_pair_opens_only_with_its_password() {
    for (kind, algorithm) in [
        (KeyKind::EcdsaP256, "ECDSA P-256"),
        (KeyKind::Ed25519, "Ed25519"),
    ] {
        let files = generate(kind, &password("right")).unwrap();
        assert!(!files.public_pem.contains('\r') && !files.private_pem.contains('\r'));

        let private = load_private(&files.private_pem, &password("right")).unwrap();
        let public = PublicKey::parse(&files.public_pem).unwrap();
        assert_eq!(*private.public(), public);
        assert_eq!(public.algorithm(), algorithm);
        assert!(public.verifies(b"text", &private.sign(b"text").unwrap()));
        assert!(!public.verifies(b"Text", &private.sign(b"text").unwrap()));
        assert!(!format!("{private:?}{files:?}").contains("PRIVATE"));

        let wrong = load_private(&files.private_pem, &password("wrong")).unwrap_err();
        assert_eq!(wrong.code.id, "BUNDLE-TRUST-010", "{wrong}");
    }
}

#[test]
fn opens_a_key_of_real_cosign() {
    let private = load_private(
        include_str!("../../testdata/cosign.key"),
        &password("fixture"),
    )
    .unwrap();
    let public = PublicKey::parse(include_str!("../../testdata/cosign.pub")).unwrap();
    assert_eq!(*private.public(), public);
    assert_eq!(
        public.id().as_str(),
        "W7W30UX0Y4XKCN/yBmprAwtMhjo0H3UTWLT4n0XoHXc="
    );
    assert_eq!(public.to_pem(), include_str!("../../testdata/cosign.pub"));
}

#[test]
fn rejects_key_files_whose_fields_are_given_by_position() {
    let pem = pem::parse(include_str!("../../testdata/cosign.key")).unwrap();
    let file: serde_json::Value = serde_json::from_slice(pem.contents()).unwrap();
    let (kdf, cipher) = (&file["kdf"], &file["cipher"]);
    let params = &kdf["params"];
    for listed in [
        serde_json::json!([kdf, cipher, file["ciphertext"]]),
        serde_json::json!({
            "kdf": [kdf["name"], params, kdf["salt"]],
            "cipher": cipher,
            "ciphertext": file["ciphertext"],
        }),
        serde_json::json!({
            "kdf": kdf,
            "cipher": [cipher["name"], cipher["nonce"]],
            "ciphertext": file["ciphertext"],
        }),
    ] {
        let text = pem_text(pem.tag(), listed.to_string().as_bytes());
        let refused = load_private(&text, &password("fixture")).unwrap_err();
        assert!(refused.to_string().contains("not the JSON"), "{refused}");
    }
}

#[test]
fn key_id_does_not_depend_on_line_endings() {
    let pem = include_str!("../../testdata/cosign.pub");
    let crlf = format!("\n# release\n{}\n\n", pem.replace('\n', "\r\n"));
    assert_eq!(
        PublicKey::parse(pem).unwrap(),
        PublicKey::parse(&crlf).unwrap()
    );
}

const RSA_1024: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDehdsvQ3jzVd7GqGanltemozhE
/hDI8Ch6MHWVvWonqxA/wA4c3lj/hhJtWHeFNBEKLNYUxmLTA+XbI/PVtHx686BC
lLAwYeMv9vy+mlqik/dhI/TVCCUE93aCQSBFkOm5+qbP3chkP4w9kkW94XGpsIzl
Ai3ChMGjQlbkbd6Z4wIDAQAB
-----END PUBLIC KEY-----
";
const RSA_2048: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAlL/y6+Vs0qqPmWwaTkG7
7u9UqHw1VUHzcSkOimx2dm3SI/g27ts20Bi/LXWUKAZ58hne27Qx+v1zHI7+TlCS
c3xqQXHPdL3jG57l50ltQ0iRLQBmsKhkq9VRrecCHTuSq42JcuumFHsmwOWzjA0e
p2+HcTjg5JjfHqhmYGjztJTX3wajGJu3tFWAwbbirayUWt47rp8Yf/Vc/7QuXQ+x
HsmGy5R8EZfg5Kkwmq+7Mi27QUDy4qyqg9JRMLZJjFmMrPjIrxezHhbO890qFMT7
8znrM0PC08hcSCtDowLoRWS2QC6m0E6VjhnFnPP+9fH+/Nqb2u+AB8uW1gCJSmxu
XQIDAQAB
-----END PUBLIC KEY-----
";
const P384: &str = "-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEOFd8171Wzo0olTBhrToMNxACewHOsS6l
1o/BgZm1BFZk3ElxLlUuubZvOxR4kyIAspcg3X6ZjqPBgBbedkjxTpfr4XbLXuof
Dg3vO+GVOJOVpjlDz34WkCRPcT7PnP2K
-----END PUBLIC KEY-----
";
const COMPRESSED: &str = "-----BEGIN PUBLIC KEY-----
MDkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDIgACd5NY0p/n5Rl7hpbGynY1VahMn2R2
5PhNMBraxoZbigc=
-----END PUBLIC KEY-----
";

#[test]
fn rejects_unsupported_public_keys_with_reason() {
    assert_eq!(PublicKey::parse(RSA_2048).unwrap().algorithm(), "RSA");
    let good = include_str!("../../testdata/cosign.pub");
    // The changed byte belongs to the point of the key, so the point is not on the curve.
    let off_curve = good.replace("4Exug==", "4Exuw==");
    let twice = format!("{good}{good}");
    let long = format!("{good}{}", "x".repeat(LONGEST_FILE));
    for (pem, why) in [
        (RSA_1024, "2048 to 8192"),
        (P384, "P-384"),
        (COMPRESSED, "uncompressed"),
        (off_curve.as_str(), "parameters are invalid"),
        (twice.as_str(), "2 PEM blocks"),
        (long.as_str(), "64 KiB"),
        ("", "not PEM"),
        ("ssh-ed25519 AAAA", "not PEM"),
        (
            "-----BEGIN PUBLIC KEY-----\n!!\n-----END PUBLIC KEY-----",
            "damaged",
        ),
        (
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
            "unknown",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            "certificate",
        ),
        (
            "-----BEGIN RSA PUBLIC KEY-----\nAAAA\n-----END RSA PUBLIC KEY-----",
            "RSA PUBLIC KEY",
        ),
        (include_str!("../../testdata/cosign.key"), "private key"),
    ] {
        let finding = PublicKey::parse(pem).unwrap_err();
        assert!(finding.message.contains(why), "{pem}: {finding}");
        assert!(finding.hint.is_some());
    }
}

fn public(der: &[u8]) -> Result<PublicKey, bundle_core::diagnostic::Finding> {
    PublicKey::parse(&pem_text("PUBLIC KEY", der))
}

#[test]
fn rejects_ed25519_keys_of_small_order() {
    let points = [
        // Points of small order with both signs of x. Some are encoded as numbers that are not
        // below the field size.
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "0100000000000000000000000000000000000000000000000000000000000080",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    ];
    for point in points {
        let bytes = crate::legacy::bytes_of(point).unwrap();
        let der = [
            &[
                0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
            ],
            bytes.as_slice(),
        ]
        .concat();
        let finding = public(&der).unwrap_err();
        assert_eq!(finding.code.id, "BUNDLE-TRUST-009", "{point}: {finding}");
        assert!(finding.message.contains("can be forged"), "{finding}");
    }
}

#[test]
fn rejects_non_canonical_encodings_of_a_key() {
    for pem in [include_str!("../../testdata/cosign.pub"), RSA_2048] {
        let der = pem::parse(pem).unwrap().into_contents();
        public(&der).unwrap();
        let with = |more: &[u8]| public(&[der.as_slice(), more].concat());
        assert!(with(&[0]).is_err() && with(&der).is_err());
        assert!(public(&der[..der.len() - 1]).is_err());
        // The outer length has more bytes than necessary.
        let long = match der[1] {
            0x82 => [&[0x30, 0x83, 0x00], &der[2..]].concat(),
            _ => [&[0x30, 0x81], &der[1..]].concat(),
        };
        assert!(public(&long).is_err());
        let garbage = format!("{pem}-----BEGIN PUBLIC KEY-----\nMFkw");
        assert!(PublicKey::parse(&garbage).is_err(), "{garbage}");
        assert!(PublicKey::parse(&format!("\u{feff}{pem}")).is_ok());
    }
    // The key has no parameters, or other parameters than RSA keys have.
    let der = pem::parse(RSA_2048).unwrap().into_contents();
    let at = der.windows(2).position(|two| two == [0x05, 0x00]).unwrap();
    let mut other = der.clone();
    other[at] = 0x04;
    assert!(public(&other).is_err());
    let mut bare = der.clone();
    bare.drain(at..at + 2);
    bare[3] -= 2;
    bare[5] -= 2;
    assert!(public(&bare).is_err());
}

#[test]
fn rejects_unsupported_private_keys_with_reason() {
    let sealed = |json: &str| pem_text("ENCRYPTED SIGSTORE PRIVATE KEY", json.as_bytes());
    let file = |n: u64, nonce: &str| {
        sealed(&format!(
            r#"{{"kdf":{{"name":"scrypt","params":{{"N":{n},"r":8,"p":1}},"salt":"AAAA"}},"cipher":{{"name":"nacl/secretbox","nonce":"{nonce}"}},"ciphertext":"AAAA"}}"#
        ))
    };
    for (pem, why) in [
        (String::new(), "not PEM"),
        (sealed("{}"), "JSON"),
        (sealed(&"[".repeat(10_000)), "JSON"),
        (file(1 << 40, "AAAA"), "scrypt parameters"),
        (file(65_536, "AAAA"), "nonce"),
        (
            include_str!("../../testdata/cosign.pub").to_owned(),
            "public key",
        ),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----".to_owned(),
            "unencrypted",
        ),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----"
                .to_owned(),
            "PKCS#8",
        ),
    ] {
        let finding = load_private(&pem, &password("")).unwrap_err();
        assert!(finding.message.contains(why), "{pem}: {finding}");
        assert!(finding.hint.is_some());
    }
}

proptest! {
    #[test]
    fn key_parsers_never_panic(text in "\\PC*", der in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = PublicKey::parse(&text);
        let _ = PublicKey::from_der(&der);
        let _ = PublicKey::parse(&pem_text("PUBLIC KEY", &der));
        let _ = load_private(&pem_text("ENCRYPTED SIGSTORE PRIVATE KEY", &der), &password(""));
    }
}
