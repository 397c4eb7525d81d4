//! Parallel gzip. The output is one gzip member of chunks that are compressed independently, so the
//! output does not depend on the number of threads.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Number of uncompressed bytes in one chunk. A change of this value changes the digest of all
/// content that needs more than one chunk.
pub(super) const CHUNK: usize = 1 << 20;
/// Compression level. The level and the compressor (pure Rust) determine every digest.
const COMPRESSION_LEVEL: u32 = 6;
/// Maximum number of threads. More threads are not faster, because the disk is the limit.
const MAX_THREADS: usize = 8;
/// gzip header: deflate, no flags, no time, no level, unknown operating system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A compressed chunk and the checksum of its uncompressed bytes.
type CompressedChunk = io::Result<(Vec<u8>, Crc)>;

/// A chunk for a thread, and the channel for the result.
struct ChunkJob {
    chunk: Vec<u8>,
    back: SyncSender<CompressedChunk>,
}

/// Compressing writer. [`finish`](Self::finish) ends the gzip member. Without this call, the output
/// is incomplete.
pub(super) struct Gzip<W> {
    inner: W,
    chunk: Vec<u8>,
    checksum: Crc,
    /// Chunks that are being compressed, in order.
    pending: VecDeque<Receiver<CompressedChunk>>,
    pool: Option<CompressorPool>,
    threads: usize,
    begun: bool,
}

impl<W: Write> Gzip<W> {
    /// Returns a writer that compresses with as many threads as the machine has cores, at most
    /// [`MAX_THREADS`].
    pub(super) fn new(inner: W) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_threads(inner, threads.min(MAX_THREADS))
    }

    /// Returns a writer that compresses with this number of threads. Threads are started only for
    /// content that needs more than one chunk.
    pub(super) fn with_threads(inner: W, threads: usize) -> Self {
        Self {
            inner,
            chunk: Vec::new(),
            checksum: Crc::new(),
            pending: VecDeque::new(),
            pool: None,
            threads: threads.max(1),
            begun: false,
        }
    }

    /// Ends the member and returns the inner writer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let last = std::mem::take(&mut self.chunk);
        while !self.pending.is_empty() {
            self.write_oldest()?;
        }
        let deflated = deflate(&last, true)?;
        self.put(&deflated)?;
        self.inner.write_all(&self.checksum.sum().to_le_bytes())?;
        self.inner
            .write_all(&self.checksum.amount().to_le_bytes())?;
        Ok(self.inner)
    }

    /// Sends a full chunk to the threads. If too many chunks are pending, waits for the oldest
    /// chunk.
    fn send_chunk(&mut self) -> io::Result<()> {
        if self.pending.len() > self.threads {
            self.write_oldest()?;
        }
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        let (back, deflated) = sync_channel(1);
        if self.pool.is_none() {
            self.pool = Some(CompressorPool::start(self.threads)?);
        }
        if let Some(pool) = &self.pool {
            pool.take(ChunkJob { chunk, back })?;
        }
        self.pending.push_back(deflated);
        Ok(())
    }

    /// Waits for the oldest pending chunk and writes it.
    fn write_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.pending.pop_front() else {
            return Ok(());
        };
        let deflated = oldest
            .recv()
            .map_err(|_| io::Error::other("a compression thread stopped unexpectedly"))??;
        self.put(&deflated)
    }

    fn put(&mut self, (bytes, checksum): &(Vec<u8>, Crc)) -> io::Result<()> {
        if !self.begun {
            self.inner.write_all(&HEADER)?;
            self.begun = true;
        }
        self.inner.write_all(bytes)?;
        self.checksum.combine(checksum);
        Ok(())
    }
}

impl<W: Write> Write for Gzip<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        // Only the last chunk ends the deflate stream. Therefore a full chunk is kept until more
        // content follows.
        if self.chunk.len() == CHUNK && !buffer.is_empty() {
            self.send_chunk()?;
        }
        let taken = buffer.len().min(CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&buffer[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses one chunk. Every chunk except the last one ends on a byte boundary.
fn deflate(chunk: &[u8], last: bool) -> CompressedChunk {
    let mut checksum = Crc::new();
    checksum.update(chunk);
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(COMPRESSION_LEVEL));
    encoder.write_all(chunk)?;
    let bytes = if last {
        encoder.finish()?
    } else {
        encoder.flush()?;
        std::mem::take(encoder.get_mut())
    };
    Ok((bytes, checksum))
}

/// Pool of compressing threads. The threads end when the pool is dropped.
struct CompressorPool {
    jobs: Option<Sender<ChunkJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl CompressorPool {
    fn start(count: usize) -> io::Result<Self> {
        let (jobs, queue) = channel::<ChunkJob>();
        let queue = Arc::new(Mutex::new(queue));
        let mut pool = Self {
            jobs: Some(jobs),
            threads: Vec::new(),
        };
        for _ in 0..count {
            let queue = Arc::clone(&queue);
            pool.threads.push(
                std::thread::Builder::new()
                    .name("deflate".to_owned())
                    .spawn(move || work(&queue))?,
            );
        }
        Ok(pool)
    }

    fn take(&self, job: ChunkJob) -> io::Result<()> {
        let gone = || io::Error::other("all compression threads stopped unexpectedly");
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(job).map_err(|_| gone())
    }
}

impl Drop for CompressorPool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // If the thread panicked, the missing result of its chunk has already caused an error.
            // Therefore the panic is ignored here.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Mutex<Receiver<ChunkJob>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(ChunkJob { chunk, back }) = job else {
            return;
        };
        // Sending fails only if the receiver was dropped after an error in another thread.
        let _ = back.send(deflate(&chunk, false));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Returns compressible text without repetitions within a chunk.
    fn content(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            b'a' + u8::try_from(state >> 60).unwrap_or(0)
        })
        .take(length)
        .collect()
    }

    fn gzip(bytes: &[u8], threads: usize, piece: usize) -> Vec<u8> {
        let mut writer = Gzip::with_threads(Vec::new(), threads);
        for piece in bytes.chunks(piece) {
            writer.write_all(piece).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn output_is_one_member_and_independent_of_threads_and_writes() {
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
            let bytes = content(length);
            let one = gzip(&bytes, 1, usize::MAX);
            for (threads, piece) in [(2, 4096), (7, 100_003), (3, CHUNK)] {
                assert!(gzip(&bytes, threads, piece) == one, "{length} {threads}");
            }
            // This decoder stops after the first gzip member, so that member must contain all
            // content.
            let mut read = Vec::new();
            let mut decoder = flate2::read::GzDecoder::new(one.as_slice());
            decoder.read_to_end(&mut read).unwrap();
            assert!(read == bytes, "{length}");
        }
    }

    #[test]
    fn single_chunk_equals_a_single_stream() {
        let bytes = content(CHUNK);
        let mut stream = flate2::GzBuilder::new()
            .operating_system(255)
            .write(Vec::new(), Compression::new(COMPRESSION_LEVEL));
        stream.write_all(&bytes).unwrap();
        assert!(gzip(&bytes, 4, 999) == stream.finish().unwrap());
    }

    /// A change of this digest changes the published digests of all large content.
    #[test]
    fn golden_digest_of_several_chunks_is_stable() {
        let sent = gzip(&content(5 * CHUNK / 2), 2, 8192);
        assert_eq!(
            bundle_core::reference::Digest::of(&sent).as_str(),
            "sha256:11cbfea2542eb38d553dc3dc4c537dc11b5f49fc528cd97abf238863de8a2a8d"
        );
    }
}
