//! Many requests at a time, and not too many.
//! Not here: what is asked.

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};

/// Requests in flight for one installation.
const AT_A_TIME: usize = 16;

/// Runs all of them and gives the results in the order in which they came.
pub(super) fn all<'a, F>(work: impl IntoIterator<Item = F>) -> BoxFuture<'a, Vec<F::Output>>
where
    F: Future<Output: Send> + Send + 'a,
{
    let work: Vec<F> = work.into_iter().collect();
    futures::stream::iter(work)
        .buffer_unordered(AT_A_TIME)
        .collect()
        .boxed()
}

/// Runs all of them and gives the results in the order in which they were asked for.
pub(super) fn ordered<'a, F>(work: impl IntoIterator<Item = F>) -> BoxFuture<'a, Vec<F::Output>>
where
    F: Future<Output: Send> + Send + 'a,
{
    let work: Vec<F> = work.into_iter().collect();
    futures::stream::iter(work)
        .buffered(AT_A_TIME)
        .collect()
        .boxed()
}
