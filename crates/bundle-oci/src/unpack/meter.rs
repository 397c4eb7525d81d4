//! Readers that count, hash and limit the compressed and the uncompressed bytes of a layer.

use std::cell::Cell;
use std::io::{self, BufRead as _, BufReader, Read};
use std::mem;
use std::rc::Rc;

use bundle_core::reference::Digest;
use flate2::bufread::GzDecoder;
use sha2::{Digest as _, Sha256};

use crate::limits::{GZIP_MEMBER_BYTES, GZIP_MEMBERS_FLOOR, RATIO_FLOOR, format_size};

/// Counts and hashes compressed bytes, and stops one byte after the declared size.
pub(super) struct CompressedReader<R> {
    /// `None` for a reader without bytes.
    inner: Option<R>,
    hash: Sha256,
    count: u64,
    /// Maximum number of bytes to read: one more than the declared size, to detect a longer input.
    most: u64,
}

impl<R: Read> CompressedReader<R> {
    pub(super) fn new(inner: R, size: u64) -> Self {
        Self {
            inner: Some(inner),
            ..Self::empty(size)
        }
    }

    /// Returns a reader without bytes.
    fn empty(size: u64) -> Self {
        Self {
            inner: None,
            hash: Sha256::new(),
            count: 0,
            most: size.saturating_add(1),
        }
    }

    /// Reads to the end and returns the total number of bytes.
    pub(super) fn drain(&mut self) -> u64 {
        let mut buffer = [0; 16 << 10];
        while matches!(self.read(&mut buffer), Ok(1..)) {}
        self.count
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::from_hash(self.hash.clone().finalize().as_slice())
    }
}

impl<R: Read> Read for CompressedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.most - self.count).unwrap_or(usize::MAX);
        let space = left.min(buffer.len());
        let read = match &mut self.inner {
            Some(inner) => inner.read(&mut buffer[..space])?,
            None => 0,
        };
        self.hash.update(&buffer[..read]);
        self.count += read as u64;
        Ok(read)
    }
}

/// Decoder of a layer, with or without gzip.
pub(super) enum Decoder<R> {
    Gzip(GzipReader<R>),
    Plain(BufReader<CompressedReader<R>>),
}

/// Reads the members of a gzip file one after another, and counts them.
pub(super) struct GzipReader<R> {
    /// Decoder of the current member.
    member: GzDecoder<BufReader<CompressedReader<R>>>,
    /// Number of members that have begun.
    members: u64,
}

impl<R: Read> GzipReader<R> {
    pub(super) fn new(input: BufReader<CompressedReader<R>>) -> Self {
        Self {
            member: GzDecoder::new(input),
            members: 1,
        }
    }

    /// Reads uncompressed bytes. Returns 0 at the end of the last member, and `None` if there are
    /// more than `most` members.
    fn read(&mut self, buffer: &mut [u8], most: u64) -> io::Result<Option<usize>> {
        loop {
            let read = self.member.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.member.get_mut().fill_buf()?.is_empty() {
                return Ok(Some(read));
            }
            if self.members >= most {
                return Ok(None);
            }
            self.begin_member();
        }
    }

    fn begin_member(&mut self) {
        let placeholder = BufReader::with_capacity(0, CompressedReader::empty(0));
        let input = mem::replace(self.member.get_mut(), placeholder);
        self.member.reset(input);
        self.members += 1;
    }
}

/// Counts and hashes uncompressed bytes. Stops if their number or the compression ratio exceeds its
/// limit.
pub(super) struct UncompressedReader<R> {
    decoder: Decoder<R>,
    hash: Sha256,
    count: u64,
    most: u64,
    ratio: u64,
    /// Remaining number of bytes for headers; `None` while content is read.
    headers: Rc<Cell<Option<u64>>>,
    overrun: Option<String>,
}

impl<R: Read> UncompressedReader<R> {
    pub(super) fn new(
        decoder: Decoder<R>,
        most: u64,
        ratio: u64,
        headers: Rc<Cell<Option<u64>>>,
    ) -> Self {
        Self {
            decoder,
            hash: Sha256::new(),
            count: 0,
            most,
            ratio,
            headers,
            overrun: None,
        }
    }

    /// Returns the exceeded limit, formatted for people.
    pub(super) fn overrun(&self) -> Option<String> {
        self.overrun.clone()
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::from_hash(self.hash.clone().finalize().as_slice())
    }

    /// Reads the remaining bytes. Returns `true` if all of them are zero, as in the padding of an
    /// archive. Returns `false` at the first other byte.
    pub(super) fn rest_is_zero(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4 << 10];
        loop {
            let read = self.read(&mut buffer)?;
            if read == 0 {
                return Ok(true);
            }
            if buffer[..read].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }

    pub(super) fn into_source(self) -> CompressedReader<R> {
        match self.decoder {
            Decoder::Gzip(decoder) => decoder.member.into_inner().into_inner(),
            Decoder::Plain(reader) => reader.into_inner(),
        }
    }

    fn arrived(&self) -> u64 {
        match &self.decoder {
            Decoder::Gzip(decoder) => decoder.member.get_ref().get_ref().count,
            Decoder::Plain(reader) => reader.get_ref().count,
        }
    }
}

impl<R: Read> Read for UncompressedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let members = GZIP_MEMBERS_FLOOR + self.count / GZIP_MEMBER_BYTES;
        let read = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.read(buffer, members)?,
            Decoder::Plain(reader) => Some(reader.read(buffer)?),
        };
        if read.is_none() {
            let limit = format!("one gzip member for each {GZIP_MEMBER_BYTES} bytes");
            self.overrun = Some(limit);
        }
        let read = read.unwrap_or_default();
        self.hash.update(&buffer[..read]);
        self.count += read as u64;
        let headers = self.headers.get().map(|left| left.checked_sub(read as u64));
        if let Some(left) = headers {
            self.headers.set(left);
        }
        if self.count > self.most {
            self.overrun = Some(format_size(self.most));
        } else if self.count > RATIO_FLOOR && self.count / self.arrived().max(1) > self.ratio {
            self.overrun = Some(format!("{} times the compressed size", self.ratio));
        }
        if headers == Some(None) && self.overrun.is_none() {
            self.overrun = Some("1 MiB of headers for one entry".to_owned());
        }
        match &self.overrun {
            Some(limit) => Err(io::Error::other(format!("it exceeds {limit}"))),
            None => Ok(read),
        }
    }
}
