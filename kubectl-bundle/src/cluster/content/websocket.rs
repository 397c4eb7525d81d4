//! Frames of the WebSocket protocol (RFC 6455). Only the parts that a port-forward needs are
//! implemented: no text frames, and no extensions.

use std::io;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Text that the server appends to the key of a handshake.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Maximum size of a received frame, in bytes. API servers send at most 32 KiB.
const MAX_FRAME: u64 = 1 << 20;
/// Value of the length field which means that the next two bytes contain the length.
const LENGTH_16: u8 = 0x7e;
/// Value of the length field which means that the next eight bytes contain the length.
const LENGTH_64: u8 = 0x7f;
/// Maximum size of a control frame, in bytes.
const MAX_CONTROL: u64 = 125;

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn parse(bits: u8) -> io::Result<Self> {
        [
            Self::Continuation,
            Self::Binary,
            Self::Close,
            Self::Ping,
            Self::Pong,
        ]
        .into_iter()
        .find(|known| *known as u8 == bits)
        .ok_or_else(|| invalid("has an unexpected type"))
    }

    fn is_control(self) -> bool {
        self as u8 >= Self::Close as u8
    }
}

/// A received frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) opcode: Opcode,
    pub(super) payload: Vec<u8>,
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a frame of the API server {what}"),
    )
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(bytes)
}

/// Returns a random key for a handshake.
pub(super) fn handshake_key() -> io::Result<String> {
    Ok(STANDARD.encode(random::<16>()?))
}

/// Returns the value with which a server accepts the key of a handshake.
pub(super) fn accepted_key(key: &str) -> String {
    let digest = aws_lc_rs::digest::digest(
        // The protocol requires SHA-1. The security of the connection does not depend on this hash.
        &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{GUID}").as_bytes(),
    );
    STANDARD.encode(digest)
}

/// Reads the next frame.
pub(super) async fn read(input: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut head = [0; 2];
    input.read_exact(&mut head).await?;
    let [kind, length] = head;
    if kind & 0x70 != 0 {
        return Err(invalid("uses an extension"));
    }
    if length & 0x80 != 0 {
        return Err(invalid("is masked"));
    }
    let opcode = Opcode::parse(kind & 0x0f)?;
    let length = match length {
        LENGTH_16 => u64::from(input.read_u16().await?),
        LENGTH_64 => input.read_u64().await?,
        short => u64::from(short),
    };
    let most = if opcode.is_control() {
        MAX_CONTROL
    } else {
        MAX_FRAME
    };
    if length > most {
        return Err(invalid("is too large"));
    }
    let mut payload = vec![0; usize::try_from(length).map_err(|_| invalid("is too large"))?];
    input.read_exact(&mut payload).await?;
    Ok(Frame { opcode, payload })
}

/// Returns a masked frame with a complete message, as clients send it.
fn encoded(opcode: Opcode, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    const IS_FINAL: u8 = 0x80;
    const IS_MASKED: u8 = 0x80;
    let mut frame = Vec::with_capacity(payload.len() + 14);
    frame.push(IS_FINAL | opcode as u8);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..=125), _) => frame.push(IS_MASKED | length),
        (_, Ok(length)) => {
            frame.push(IS_MASKED | LENGTH_16);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(IS_MASKED | LENGTH_64);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    frame
}

/// Sends a frame.
pub(super) async fn write(
    output: &mut (impl AsyncWrite + Unpin),
    opcode: Opcode,
    payload: &[u8],
) -> io::Result<()> {
    let frame = encoded(opcode, payload, random()?);
    output.write_all(&frame).await?;
    output.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn decoded(bytes: &[u8]) -> io::Result<Frame> {
        read(&mut &*bytes).await
    }

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn accepted_key_matches_rfc_6455() {
        assert_eq!(
            accepted_key("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(handshake_key().unwrap().len(), 24);
    }

    /// The examples of RFC 6455, section 5.7.
    #[tokio::test]
    async fn reads_frames_of_every_length() {
        let binary = |payload: Vec<u8>| Frame {
            opcode: Opcode::Binary,
            payload,
        };
        let mut medium = vec![0x82, 0x7e, 0x01, 0x00];
        medium.extend([7; 256]);
        assert_eq!(decoded(&medium).await.unwrap(), binary(vec![7; 256]));
        let mut long = vec![0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0];
        long.extend(vec![7; 65_536]);
        assert_eq!(decoded(&long).await.unwrap(), binary(vec![7; 65_536]));
        let ping = [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
        assert_eq!(
            decoded(&ping).await.unwrap(),
            Frame {
                opcode: Opcode::Ping,
                payload: b"Hello".to_vec()
            }
        );
    }

    #[tokio::test]
    async fn rejects_invalid_frames() {
        for (bytes, expected) in [
            (&[0x82, 0x85, 0, 0, 0, 0][..], "is masked"),
            (&[0xc2, 0x01, 0], "uses an extension"),
            (&[0x81, 0x01, b'a'], "has an unexpected type"),
            (&[0x89, 0x7e, 0x01, 0x00], "is too large"),
            (&[0x82, 0x7f, 0, 0, 0, 0, 0xff, 0, 0, 0], "is too large"),
            (&[0x82, 0x7f, 0xff, 0, 0, 0, 0, 0, 0, 0], "is too large"),
        ] {
            let error = decoded(bytes).await.unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
        let error = decoded(&[0x82, 0x05, 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// The first frame is the example of RFC 6455, section 5.7, as a binary frame.
    #[test]
    fn frames_of_clients_are_masked() {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        assert_eq!(
            encoded(Opcode::Binary, b"Hello", mask),
            [
                0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58
            ]
        );
        for (length, head) in [
            (125, &[0x82, 0xfd][..]),
            (126, &[0x82, 0xfe, 0, 126]),
            (65_535, &[0x82, 0xfe, 0xff, 0xff]),
            (65_536, &[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let frame = encoded(Opcode::Binary, &vec![1; length], mask);
            assert!(frame.starts_with(head), "{length}");
            assert_eq!(frame.len(), head.len() + 4 + length);
        }
    }
}
