//! `pause`, and the implementation of `resume`: set and remove `spec.paused` of BundleDeployments.

mod arguments;

use bundle_api::BundleDeployment;
use serde_json::{Value, json};

use super::named_failures::NamedFailures;
use super::revisions;
use super::state::conditions::kind_and_name_of;
use crate::cluster::apply::DryRun;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::Outcome;
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::{Arguments, PauseFlags};

/// Value of `spec.paused` that a verb writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseState {
    /// `pause`: the field is `true`.
    Paused,
    /// `resume`: the field is not set.
    Resumed,
}

/// Settings of `pause` and `resume`.
pub(crate) struct SetPauseState {
    /// Names of the BundleDeployments.
    pub(crate) names: Vec<String>,
    /// Value to write.
    pub(crate) state: PauseState,
    /// Mode of a dry run.
    pub(crate) dry_run: DryRun,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

impl PauseState {
    /// Returns the word that is printed after the name of an object, such as `already paused`.
    /// `is_changed` is `true` if the verb changed the state.
    fn word(self, is_changed: bool) -> &'static str {
        match (self, is_changed) {
            (Self::Paused, true) => "paused",
            (Self::Paused, false) => "already paused",
            (Self::Resumed, true) => "resumed",
            (Self::Resumed, false) => "already resumed",
        }
    }

    /// Returns the value of `spec.paused` in a merge patch. `null` removes the field.
    fn value(self) -> Value {
        match self {
            Self::Paused => Value::Bool(true),
            Self::Resumed => Value::Null,
        }
    }

    /// Returns `true` if the object has this state. An object without `spec.paused` is not paused.
    fn is_state_of(self, object: &Value) -> bool {
        let is_paused = object["spec"]["paused"] == true;
        is_paused == (self == Self::Paused)
    }

    /// Sets this state in the object, as the merge patch does.
    fn set_in(self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
            return;
        };
        match self.value() {
            Value::Null => spec.remove("paused"),
            value => spec.insert("paused".to_owned(), value),
        };
    }
}

impl SetPauseState {
    /// Writes the state of each BundleDeployment, and prints the results.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let cluster = Cluster::connect(&self.cluster).await?;
        let mut failures = NamedFailures::new(&self.names);
        let mut objects = Vec::new();
        for name in &self.names {
            let outcome = self.write(&cluster, name).await;
            // Warnings are also printed if the API server rejects the request, because they often
            // explain the rejection.
            for warning in cluster.take_warnings() {
                ui.server_warning(&warning);
            }
            let Some((word, object)) = failures.check(ui, name, outcome)? else {
                continue;
            };
            let qualified = kind_and_name_of(name);
            match self.format {
                Some(Format::Json | Format::Yaml) => objects.push(object),
                Some(Format::Name) => ui.data(qualified)?,
                _ => ui.data(format!("{qualified} {word}{}", self.dry_run.suffix()))?,
            }
        }
        match (self.names.as_slice(), objects.as_slice()) {
            ([_], [one]) => ui.structured(self.format, one)?,
            _ => ui.structured(
                self.format,
                &json!({"apiVersion": "v1", "kind": "List", "items": objects}),
            )?,
        };
        failures.finish()
    }

    /// Writes the state of one BundleDeployment. Returns the printed word and the object. An object
    /// that already has the state is not written. With `--dry-run=client`, no object is written.
    async fn write(&self, cluster: &Cluster, name: &str) -> Outcome<(&'static str, Value)> {
        let Some(mut object) = cluster.read::<BundleDeployment>(name).await? else {
            return Err(revisions::not_found(name));
        };
        let is_changed = !self.state.is_state_of(&object);
        match self.dry_run {
            _ if !is_changed => {}
            DryRun::Client => self.state.set_in(&mut object),
            DryRun::None | DryRun::Server => {
                let patch = json!({"spec": {"paused": self.state.value()}});
                object = cluster
                    .merge::<BundleDeployment>(name, &patch, self.dry_run)
                    .await?;
            }
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        Ok((self.state.word(is_changed), object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_pauses() {
        for (spec, is_paused) in [
            (json!({"paused": true}), true),
            (json!({"paused": false}), false),
            (json!({}), false),
        ] {
            let object = json!({"spec": spec});
            assert_eq!(PauseState::Paused.is_state_of(&object), is_paused);
            assert_eq!(PauseState::Resumed.is_state_of(&object), !is_paused);
        }
    }

    #[test]
    fn resume_removes_the_field_and_keeps_other_fields() {
        let mut object = json!({"spec": {"collision": "Adopt"}});
        PauseState::Paused.set_in(&mut object);
        assert_eq!(
            object["spec"],
            json!({"collision": "Adopt", "paused": true})
        );
        PauseState::Resumed.set_in(&mut object);
        assert_eq!(object["spec"], json!({"collision": "Adopt"}));
    }
}
