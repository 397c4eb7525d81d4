//! Parser for the names in a certificate (DER): issuer and subject. The parser does not verify the
//! certificate.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
/// Tag of the version, which precedes the serial number in a certificate.
const VERSION: u8 = 0xa0;

struct Element<'a> {
    tag: u8,
    /// All bytes of the element: tag, length and content.
    whole: &'a [u8],
    content: &'a [u8],
}

/// Returns the first element and the remaining bytes.
fn element(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x0f))?;
            let length = digits
                .iter()
                .fold(0, |length, digit| length << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    let element = Element {
        tag: *tag,
        whole: bytes.get(..bytes.len() - after.len())?,
        content,
    };
    Some((element, after))
}

fn expect(bytes: &[u8], tag: u8) -> Option<(Element<'_>, &[u8])> {
    element(bytes).filter(|(found, _)| found.tag == tag)
}

/// Returns issuer and subject of the certificate.
fn names(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (signed, _) = expect(certificate.content, SEQUENCE)?;
    let rest = signed.content;
    let rest = expect(rest, VERSION).map_or(rest, |(_, after)| after);
    let (_, rest) = expect(rest, INTEGER)?;
    let (_, rest) = expect(rest, SEQUENCE)?;
    let (issuer, rest) = expect(rest, SEQUENCE)?;
    let (_, rest) = expect(rest, SEQUENCE)?;
    let (subject, _) = expect(rest, SEQUENCE)?;
    Some((issuer.whole, subject.whole))
}

/// Returns `true` if issuer and subject of the certificate are equal, as in a root certificate.
/// Returns `false` if the bytes are not a certificate.
pub(crate) fn is_self_issued(certificate: &[u8]) -> bool {
    names(certificate).is_some_and(|(issuer, subject)| issuer == subject)
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    #[test]
    fn only_roots_are_self_issued() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        assert!(is_self_issued(root.der()));
        let mut below = CertificateParams::default();
        below.distinguished_name.push(DnType::CommonName, "below");
        let issued = below
            .signed_by(&other, &Issuer::from_params(&params, &key))
            .unwrap();
        assert!(!is_self_issued(issued.der()));
        for end in 0..root.der().len() {
            let _ = is_self_issued(&root.der()[..end]);
        }
        for bytes in [
            b"".as_slice(),
            b"\x30",
            b"\x30\x84\xff\xff\xff\xff",
            b"AAAA",
        ] {
            assert!(!is_self_issued(bytes));
        }
    }
}
