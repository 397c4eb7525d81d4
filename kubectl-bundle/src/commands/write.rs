//! Writing one object of ours and telling what became of it, for `deploy` and `create`.
//! Not here: what the object is, and when it counts as installed.

use std::fmt::Debug;

use kube::Resource;
use kube::api::Api;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::apply::{Change, DryRun};
use crate::cluster::wait::Wait;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::Ui;
use crate::ui::format::Format;

/// How to write it.
pub(crate) struct Write {
    /// Whether the cluster is changed.
    pub(crate) dry_run: DryRun,
    /// Whether fields of others are taken over.
    pub(crate) force: bool,
    /// Whether to wait, and for how long at most.
    pub(crate) wait: Wait,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// Which cluster.
    pub(crate) cluster: KubeSettings,
}

impl Write {
    /// Applies `object`, passes on the server's warnings and prints kubectl's line. Gives the connection, if the cluster was changed.
    pub(super) async fn apply<K>(&self, ui: &mut Ui, object: &K) -> Outcome<Option<Cluster>>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
    {
        let name = object.meta().name.clone().unwrap_or_default();
        if self.dry_run == DryRun::Client {
            self.print(ui, object, &name, Change::Created)?;
            return Ok(None);
        }
        let cluster = Cluster::connect(&self.cluster).await?;
        let api: Api<K> = Api::all(cluster.client.clone());
        let applied = cluster
            .apply(&api, &name, object, self.dry_run, self.force)
            .await;
        // Also when it was refused: they are often about the reason.
        for warning in cluster.take_warnings() {
            ui.server_warning(&warning);
        }
        let (mut after, change) = applied?;
        after.meta_mut().managed_fields = None;
        self.print(ui, &after, &name, change)?;
        Ok((self.dry_run == DryRun::None).then_some(cluster))
    }

    fn print<K>(&self, ui: &mut Ui, object: &K, name: &str, change: Change) -> Outcome
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        if ui.structured(self.format, object)? {
            return Ok(());
        }
        let qualified = format!("{}.{}/{name}", K::kind(&()).to_lowercase(), K::group(&()));
        if self.format == Some(Format::Name) {
            return ui.data(qualified);
        }
        ui.data(format!(
            "{qualified} {}{}",
            change.word(),
            self.dry_run.suffix()
        ))
    }
}
