//! Runs requests in parallel, up to a limit.

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};

/// Largest number of parallel requests for one installation.
const AT_A_TIME: usize = 16;

/// Runs all futures and returns the results in the order of completion.
///
/// This function boxes the futures, because their lifetimes are known here. Inside a controller,
/// the compiler cannot prove that closures over references are `Send`.
pub fn all<'a, I, F>(work: I) -> BoxFuture<'a, Vec<F::Output>>
where
    I: IntoIterator<Item = F, IntoIter: Send + 'a>,
    F: Future<Output: Send> + Send + 'a,
{
    futures::stream::iter(work)
        .buffer_unordered(AT_A_TIME)
        .collect()
        .boxed()
}

/// Runs all futures and returns the results in the order of the futures.
pub fn ordered<'a, I, F>(work: I) -> BoxFuture<'a, Vec<F::Output>>
where
    I: IntoIterator<Item = F, IntoIter: Send + 'a>,
    F: Future<Output: Send> + Send + 'a,
{
    futures::stream::iter(work)
        .buffered(AT_A_TIME)
        .collect()
        .boxed()
}
