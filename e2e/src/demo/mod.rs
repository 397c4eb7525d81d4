//! Demo of the product on a real cluster, as a sequence of command lines with their expected
//! output. `cargo xtask demo` runs and prints the demo. A scenario runs the demo and kills the
//! webhook repeatedly.

mod authoring;
mod installation;
mod recording;
mod rejections;
mod runner;

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use authoring::{govern, package, ship};
use installation::{adopt, drift, install, upgrade};
use rejections::{clean_up, moved_tag, rejections, unreviewed};

pub use recording::Recording;
pub use runner::{DemoOutput, DemoRunner};

/// Chapter of the demo.
pub struct Chapter {
    /// Title as displayed.
    pub title: &'static str,
    run: for<'r, 'a> fn(&'r mut DemoRunner<'a>) -> LocalBoxFuture<'r, Result<()>>,
}

macro_rules! chapters {
    ($($title:literal => $function:ident,)*) => {
        /// All chapters in order. Each chapter depends on the earlier chapters.
        pub const CHAPTERS: &[Chapter] = &[$(Chapter { title: $title, run: |runner| $function(runner).boxed_local() }),*];
    };
}

chapters! {
    "From a folder of manifests to one artifact" => package,
    "Signed, pushed, verified" => ship,
    "Who may install what: a class and a signature policy" => govern,
    "Installed: two hundred objects, their CRDs among them" => install,
    "The project installs itself, and RukPak's own YAML works unchanged" => adopt,
    "Drift: changed objects are restored; foreign fields and objects stay" => drift,
    "An upgrade, and the removed objects are pruned" => upgrade,
    "Rejections" => rejections,
    "A moved tag changes nothing" => moved_tag,
    "Written while admission was off: reported, not installed" => unreviewed,
    "A deletion removes all objects" => clean_up,
}

/// Objects that the demo creates outside of bundles, as kubectl's `TYPE/NAME`. These objects may
/// remain after a failure. Objects of bundles are deleted with the bundles after success.
pub const OUTSIDE_OF_BUNDLES: &[&str] = &[
    "clusterrole/bundle-author",
    "clusterrole/use-plain",
    "clusterrolebinding/ana-is-author",
    "clusterrolebinding/ana-uses-plain",
    "namespace/shop",
    "namespace/greeting",
    "clusterrole/shop-features",
    "priorityclass/shop-critical",
    "customresourcedefinition/queues.shop.example.com",
    "customresourcedefinition/features.shop.example.com",
];

/// Runs chapter `number`, from 0.
pub async fn run_chapter(runner: &mut DemoRunner<'_>, number: usize) -> Result<()> {
    let chapter = &CHAPTERS[number];
    runner.chapter(number + 1, chapter.title);
    (chapter.run)(runner)
        .await
        .with_context(|| format!("chapter {}, \"{}\"", number + 1, chapter.title))
}

/// Returns the host of the registry.
fn registry(runner: &DemoRunner<'_>) -> Result<String> {
    Ok(runner.cluster.registry(0)?.host())
}
