//! Many requests at a time, and not too many.
//! Not here: what is asked.

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};

/// Requests in flight for one installation.
const AT_A_TIME: usize = 16;

/// Runs all of them and gives the results in the order in which they came.
///
/// Boxed here, where lifetimes are known: the compiler cannot tell that closures over references may be sent when it sees them inside a controller.
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

/// Runs all of them and gives the results in the order in which they were asked for.
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
