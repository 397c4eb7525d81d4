//! Tests of signatures in alternative encodings, which are accepted or rejected.

use super::*;

/// Returns r and s of a DER signature, without leading zeros.
fn halves(der: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let r = usize::from(der[3]);
    let number = |bytes: &[u8]| -> Vec<u8> {
        let bytes = bytes.iter().copied();
        bytes.skip_while(|byte| *byte == 0).collect()
    };
    (number(&der[4..4 + r]), number(&der[6 + r..]))
}

fn integer(number: &[u8]) -> Vec<u8> {
    let positive = number.first().is_some_and(|byte| *byte >= 0x80);
    let mut bytes = vec![0; usize::from(positive)];
    bytes.extend_from_slice(number);
    let mut der = vec![0x02, u8::try_from(bytes.len()).unwrap()];
    der.extend(bytes);
    der
}

fn pair(r: &[u8], s: &[u8]) -> Vec<u8> {
    let content = [integer(r), integer(s)].concat();
    [
        &[0x30, u8::try_from(content.len()).unwrap()],
        content.as_slice(),
    ]
    .concat()
}

#[test]
fn rejects_signature_in_another_encoding() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let id = key.public().id().clone();
    let good: Value = serde_json::from_slice(&signed(&key, |_| {})).unwrap();
    let sig = good["dsseEnvelope"]["signatures"][0]["sig"]
        .as_str()
        .unwrap();
    let der = dsse::decode(sig).unwrap();
    let with = |bytes: &[u8]| {
        let mut bundle = good.clone();
        bundle["dsseEnvelope"]["signatures"][0]["sig"] = json!(dsse::encode(bytes));
        judge(bundle.to_string().as_bytes(), &key)
    };
    let (r, s) = halves(&der);
    let fixed = |number: &[u8]| [vec![0; 32 - number.len()], number.to_vec()].concat();
    let mut long_form = vec![0x30, 0x81];
    long_form.extend_from_slice(&der[1..]);
    for (what, bytes) in [
        ("trailing bytes", [der.as_slice(), &[0]].concat()),
        (
            "both numbers without a frame",
            [fixed(&r), fixed(&s)].concat(),
        ),
        ("a longer length than needed", long_form),
        ("s is zero", pair(&r, &[0])),
        ("r is zero", pair(&[0], &s)),
        ("both are one", pair(&[1], &[1])),
        ("r and s changed places", pair(&s, &r)),
        ("an extra zero before r", {
            let r = [&[0, 0], r.as_slice()].concat();
            let r = [&[0x02, u8::try_from(r.len()).unwrap()], r.as_slice()].concat();
            let content = [r, integer(&s)].concat();
            [
                &[0x30, u8::try_from(content.len()).unwrap()],
                content.as_slice(),
            ]
            .concat()
        }),
    ] {
        assert_eq!(with(&bytes), Err(Rejection::Forged(id.clone())), "{what}");
    }
    // For each ECDSA signature, a second valid signature can be computed without the private key.
    // Its payload and key are the same, so it counts for the same signer.
    assert_eq!(
        with(&mirrored(&der)).unwrap().signer,
        with(&der).unwrap().signer
    );
    // The base64 text of the signature has another form: an extra character, no padding, or a line
    // end.
    for text in [
        sig.trim_end_matches('=').to_owned() + "A",
        sig.replace('=', ""),
        format!("{sig}\n"),
    ] {
        let mut bundle = good.clone();
        bundle["dsseEnvelope"]["signatures"][0]["sig"] = json!(text);
        let found = judge(bundle.to_string().as_bytes(), &key);
        assert!(found.is_err() || text == sig, "{text}");
    }
}

#[test]
fn rejects_malleable_ed25519_signature() {
    // Order of the group. A verifier that does not check the range of `s` would also accept `s`
    // plus the order.
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let key = PrivateKey::unwritten(KeyKind::Ed25519);
    let mut bundle: Value = serde_json::from_slice(&signed(&key, |_| {})).unwrap();
    let sig = &mut bundle["dsseEnvelope"]["signatures"][0]["sig"];
    let mut bytes = dsse::decode(sig.as_str().unwrap()).unwrap();
    let mut carry = 0;
    for (byte, add) in bytes[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    *sig = json!(dsse::encode(&bytes));
    let found = judge(bundle.to_string().as_bytes(), &key);
    assert_eq!(found, Err(Rejection::Forged(key.public().id().clone())));
}

/// Returns the second valid ECDSA signature for the same content: with `n - s` instead of `s`.
pub(in crate::verify::tests) fn mirrored(der: &[u8]) -> Vec<u8> {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63,
        0x25, 0x51,
    ];
    let (r, s) = halves(der);
    let mut long = vec![0; 32 - s.len()];
    long.extend(s);
    let mut other = [0; 32];
    let mut borrow = 0;
    for at in (0..32).rev() {
        let left = i16::from(ORDER[at]) - i16::from(long[at]) - borrow;
        borrow = i16::from(left < 0);
        other[at] = u8::try_from(left + 256 * borrow).unwrap();
    }
    let other: Vec<u8> = other.into_iter().skip_while(|byte| *byte == 0).collect();
    pair(&r, &other)
}
