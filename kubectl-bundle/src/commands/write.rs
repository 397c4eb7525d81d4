//! Writing one object of ours and telling what became of it, for `deploy` and `create`.

use bundle_core::diagnostic::{Finding, codes};
use kube::Resource;
use serde_json::Value;

use crate::cluster::apply::{Applied, Change, DryRun};
use crate::cluster::owned::differences;
use crate::cluster::wait::Wait;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::Ui;
use crate::ui::format::Format;

use super::waiting;

/// Most attempts to read and apply an object that somebody else, such as the pod, writes at the same time.
const TRIES: u32 = 10;

/// How to write it.
pub(crate) struct Write {
    /// `true` if the cluster is changed.
    pub(crate) dry_run: DryRun,
    /// `true` if fields of others are taken over.
    pub(crate) force: bool,
    /// `true` if to wait, and for how long at most.
    pub(crate) wait: Wait,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// Which cluster.
    pub(crate) cluster: KubeSettings,
}

/// An object that was written, in a cluster that was changed.
pub(super) struct Written {
    /// The connection.
    pub(super) cluster: Cluster,
    /// Before and after.
    pub(super) applied: Applied,
    /// Warnings of the API server, as they were printed.
    pub(super) warnings: Vec<String>,
}

impl Written {
    /// The failure that the deployment had before, if its spec is still the same.
    pub(super) fn known_failure(&self) -> Option<String> {
        let before = self.applied.before.as_ref()?;
        let generation = |object: &Value| object["metadata"]["generation"].as_i64();
        if generation(before) != generation(&self.applied.after) {
            return None;
        }
        waiting::known(&serde_json::from_value(before.clone()).ok()?)
    }

    /// Fails where admission said that nobody answers to the class, so that nothing would ever happen.
    pub(super) fn fail_without_class(&self, name: &str) -> Outcome {
        let code = codes::review::CLASS_UNKNOWN;
        let class = &self.applied.after["spec"]["provisionerClassName"];
        if !self.warnings.iter().any(|text| text.contains(code.id)) {
            return Ok(());
        }
        Err(Finding::error(
            code,
            format!(
                "there is no ProvisionerClass {}, so nothing installs {name}",
                class.as_str().unwrap_or_default()
            ),
        )
        .hint("name another with --class; `kubectl get provisionerclasses` lists them")
        .into())
    }
}

impl Write {
    /// Applies the object that `compose` makes of the present one, prints the server's warnings, kubectl's line and each field that
    /// changes. Returns `None` where the cluster was not changed. With `--dry-run=client` no cluster is asked.
    pub(super) async fn apply<K>(
        &self,
        ui: &mut Ui,
        name: &str,
        mut compose: impl AsyncFnMut(&mut Ui, Option<&Value>) -> Value,
    ) -> Outcome<Option<Written>>
    where
        K: Resource<DynamicType = ()>,
    {
        if self.dry_run == DryRun::Client {
            let object = compose(ui, None).await;
            self.print::<K>(ui, &object, name, Change::Created)?;
            return Ok(None);
        }
        let cluster = Cluster::connect(&self.cluster).await?;
        let mut tries = 1;
        let (before, after) = loop {
            let before = cluster.read::<K>(name).await?;
            let mut object = compose(ui, before.as_ref()).await;
            if let Some(before) = &before {
                // What somebody changes meanwhile is read, and not undone.
                let version = &before["metadata"]["resourceVersion"];
                object["metadata"]["resourceVersion"] = version.clone();
            }
            let after = cluster
                .apply::<K>(name, &object, self.dry_run, self.force)
                .await;
            match &after {
                Err(failure) if tries < TRIES && failure.is_stale() => tries += 1,
                _ => break (before, after),
            }
        };
        // Also when it was refused: they are often about the reason.
        let warnings = cluster.take_warnings();
        for warning in &warnings {
            ui.server_warning(warning);
        }
        let applied = Applied {
            before,
            after: after?,
        };
        let mut shown = applied.after.clone();
        if let Some(metadata) = shown["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        self.print::<K>(ui, &shown, name, applied.change())?;
        if let Some(before) = &applied.before {
            for line in differences("spec", &before["spec"], &applied.after["spec"]) {
                ui.note(format!("  {line}"));
            }
        }
        Ok((self.dry_run == DryRun::None).then_some(Written {
            cluster,
            applied,
            warnings,
        }))
    }

    fn print<K>(&self, ui: &mut Ui, object: &Value, name: &str, change: Change) -> Outcome
    where
        K: Resource<DynamicType = ()>,
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
