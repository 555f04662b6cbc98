//! What is wrong on a namespace is told there, once: an Event for each value that cannot be read. (Client not required.)

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::events::Remark;
use shared::annotations::{WRITTEN_BY_PEOPLE, check};
use shared::workload::{Namespace, ObjectRef};

use crate::decide::snapshot::Snapshot;

/// Which wrong values were told, by namespace and key.
#[derive(Debug, Default)]
pub(super) struct Mistakes(BTreeMap<(Arc<str>, &'static str), Arc<str>>);

impl Mistakes {
    /// What is new.
    pub fn found(&mut self, snapshot: &Snapshot) -> Vec<Remark> {
        let mut remarks = Vec::new();
        self.0
            .retain(|(namespace, _), _| snapshot.namespace(namespace).is_some());
        for namespace in snapshot.namespaces() {
            for key in WRITTEN_BY_PEOPLE {
                let place = (Arc::clone(&namespace.name), *key);
                let value = namespace.annotation(key).or_else(|| namespace.label(key));
                let problem = value.and_then(|value| check(key, value).err());
                match (value, problem) {
                    (Some(value), Some(problem)) => {
                        let before = self.0.insert(place, Arc::from(value));
                        if before.as_deref() != Some(value) {
                            remarks.push(remark(namespace, problem.to_string()));
                        }
                    }
                    _ => drop(self.0.remove(&place)),
                }
            }
        }
        remarks
    }
}

fn remark(namespace: &Namespace, note: String) -> Remark {
    Remark {
        // In the namespace itself, where its people look.
        object: ObjectRef {
            group: Arc::from(""),
            kind: Arc::from("Namespace"),
            namespace: Arc::clone(&namespace.name),
            name: Arc::clone(&namespace.name),
        },
        version: Arc::from("v1"),
        uid: Arc::clone(&namespace.uid),
        action: "Decide",
        reason: "ValueIgnored",
        note,
        warning: true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::Kinds;

    use super::*;
    use crate::decide::snapshot::Dirty;

    #[test]
    fn a_wrong_value_on_a_namespace_is_told_once_and_again_when_it_is_another_one() {
        let mut snapshot = Snapshot::new(Arc::new(Kinds::default()), "offhours-system");
        let write = |snapshot: &mut Snapshot, value: &str| {
            let object = json!({"metadata": {
                "name": "shop", "uid": "u", "annotations": {"offhours.platform.io/awake-until": value},
            }});
            let namespace = Arc::new(Namespace::read(&object).unwrap());
            snapshot.set_namespace(&namespace, &mut Dirty::default());
        };
        let mut mistakes = Mistakes::default();
        write(&mut snapshot, "tomorrow");
        let told = mistakes.found(&snapshot);
        let [remark] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((&*remark.object.kind, &*remark.object.namespace), ("Namespace", "shop"));
        assert!(
            remark.note.contains("\"tomorrow\"") && remark.note.contains("awake-until"),
            "{}",
            remark.note
        );
        assert!(mistakes.found(&snapshot).is_empty());
        write(&mut snapshot, "2h");
        assert!(mistakes.found(&snapshot).is_empty());
        write(&mut snapshot, "tomorrow");
        assert_eq!(mistakes.found(&snapshot).len(), 1);
        write(&mut snapshot, "next week");
        assert_eq!(mistakes.found(&snapshot).len(), 1);
        // A namespace that is gone leaves nothing, and one of the same name is another one.
        snapshot.remove_namespace(&Arc::from("shop"), &mut Dirty::default());
        assert!(mistakes.found(&snapshot).is_empty() && mistakes.0.is_empty());
        write(&mut snapshot, "next week");
        assert_eq!(mistakes.found(&snapshot).len(), 1);
    }
}
