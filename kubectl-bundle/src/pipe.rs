//! Reading what a program that we run writes, within a limit and without ever stopping it.
//! Not here: which program, and for how long (input, kms).

use std::io::{self, Read};
use std::sync::mpsc;
use std::thread;

/// Reads a pipe to its end or beyond its limit, on a thread of its own: a full pipe would stop the program. Of what is no output the rest is read
/// and forgotten. What was read is told with whether it is output; it is longer than `limit` if there was more.
pub(crate) fn read(
    pipe: impl Read + Send + 'static,
    limit: u64,
    tell: mpsc::Sender<(Vec<u8>, bool)>,
    is_output: bool,
) {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe.take(limit + 1);
        // What was read until an error is all that there is.
        let _ = pipe.read_to_end(&mut bytes);
        if !is_output {
            let _ = io::copy(&mut pipe.into_inner(), &mut io::sink());
        }
        let _ = tell.send((bytes, is_output));
    });
}
