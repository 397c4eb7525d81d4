//! Runs requests in parallel, up to a limit.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};

/// Largest number of parallel requests for one installation.
const AT_A_TIME: usize = 16;

/// Returns the results of all futures in the order of completion. A caller that processes each
/// result immediately has only a few results in memory, for example a few error responses.
pub fn stream<'a, I, F>(work: I) -> BoxStream<'a, F::Output>
where
    I: IntoIterator<Item = F, IntoIter: Send + 'a>,
    F: Future<Output: Send> + Send + 'a,
{
    futures::stream::iter(work)
        .buffer_unordered(AT_A_TIME)
        .boxed()
}

/// Like [`stream`], but returns the results in the order of the futures.
pub fn ordered_stream<'a, I, F>(work: I) -> BoxStream<'a, F::Output>
where
    I: IntoIterator<Item = F, IntoIter: Send + 'a>,
    F: Future<Output: Send> + Send + 'a,
{
    futures::stream::iter(work).buffered(AT_A_TIME).boxed()
}

/// Runs all futures and returns the results in the order of completion.
///
/// This function boxes the futures, because their lifetimes are known here. Inside a controller,
/// the compiler cannot prove that closures over references are `Send`.
pub fn all<'a, I, F>(work: I) -> BoxFuture<'a, Vec<F::Output>>
where
    I: IntoIterator<Item = F, IntoIter: Send + 'a>,
    F: Future<Output: Send> + Send + 'a,
{
    stream(work).collect().boxed()
}

/// Runs all futures and returns the results in the order of the futures.
pub fn ordered<'a, I, F>(work: I) -> BoxFuture<'a, Vec<F::Output>>
where
    I: IntoIterator<Item = F, IntoIter: Send + 'a>,
    F: Future<Output: Send> + Send + 'a,
{
    ordered_stream(work).collect().boxed()
}
