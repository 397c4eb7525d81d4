//! Event recorders. Each note (text of an Event) has a separate recorder, because a recorder of
//! kube-rs merges Events that differ only in their note. The merged Event contains only the first
//! note.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bundle_api::names;
use kube::Client;
use kube::runtime::events::Recorder;

/// Maximum number of recorders. When this number is reached, all recorders are removed, and later
/// Events are not merged with earlier Events.
const MAX_RECORDERS: usize = 500;

/// The key of a recorder: uid of the object, reason and note of the Event.
type EventKey = (Option<String>, String, String);

/// Event recorders by object, reason and note. Therefore only equal Events are merged.
pub(in crate::reconcile) struct Recorders {
    client: Client,
    by_event: Mutex<HashMap<EventKey, Recorder>>,
}

impl Recorders {
    /// Creates an empty set of recorders.
    pub(in crate::reconcile) fn new(client: Client) -> Self {
        Self {
            client,
            by_event: Mutex::default(),
        }
    }

    /// Returns the recorder for Events about the object that has this uid. All these Events have
    /// this reason and this note.
    pub(in crate::reconcile) fn get(
        &self,
        uid: Option<&str>,
        reason: &str,
        note: &str,
    ) -> Recorder {
        let key = (uid.map(str::to_owned), reason.to_owned(), note.to_owned());
        let mut recorders = self.by_event.lock().unwrap_or_else(PoisonError::into_inner);
        if recorders.len() >= MAX_RECORDERS && !recorders.contains_key(&key) {
            recorders.clear();
        }
        recorders
            .entry(key)
            .or_insert_with(|| Recorder::new(self.client.clone(), names::FIELD_MANAGER.into()))
            .clone()
    }
}
