//! The schedules of cluster and settings, compiled once for all who ask. No client required.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::ConfigMap;
use shared::{
    api::{CalendarTexts, ConfigMapKey, OffHoursSchedule},
    policy::{Origin, Schedule, Schedules},
    settings::ScheduleSetting,
};
use tokio::sync::watch;

use crate::{
    follow::SourceSpec,
    item::Item,
    reflector::Resource,
    store::{SourceState, Store},
    view::View,
};

/// A schedule of the cluster as it was read.
pub type ScheduleItem = Arc<Item<OffHoursSchedule>>;

/// What is known of schedules.
#[derive(Debug, Default)]
pub struct Compiled {
    /// Ready for decisions. The same `Arc` for as long as nothing that they say changes.
    pub schedules: Arc<Schedules>,
    /// The custom resources, by name.
    pub resources: BTreeMap<Arc<str>, ScheduleItem>,
}

/// Compiles schedules, again only where something changed.
pub struct ScheduleSource {
    view: Arc<View>,
    settings: Vec<ScheduleSetting>,
    calendars: Option<Arc<Store<Item<ConfigMap>>>>,
    memo: Mutex<Memo>,
}

struct Memo {
    /// What would tell of changes.
    stirred: Vec<watch::Receiver<u64>>,
    fresh: bool,
    compiled: Arc<Compiled>,
    stamp: Option<Stamp>,
    known: BTreeMap<Arc<str>, (Key, Arc<Schedule>)>,
    texts: CalendarTexts,
}

/// What a compiled schedule depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    uid: Arc<str>,
    generation: i64,
    deleting: bool,
    /// An object that does not fit its type has no generation that we could read.
    unreadable: Option<Arc<str>>,
}

/// What all of them depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    keys: Vec<(Arc<str>, Key)>,
    unavailable: Option<Arc<str>>,
}

/// The `ConfigMap`s with calendars, in our own namespace.
pub fn calendar_source(own_namespace: &str) -> SourceSpec<Item<ConfigMap>> {
    let resource = Resource {
        group: String::new(),
        version: "v1".to_owned(),
        plural: "configmaps".to_owned(),
        namespace: Some(own_namespace.to_owned()),
        metadata_only: false,
        labels: None,
    };
    SourceSpec::whole(resource, "ConfigMap", false)
}

impl ScheduleSource {
    /// The schedules of `view` and of the settings. `calendars`: the store of [`calendar_source`], where it is followed.
    pub fn new(
        view: Arc<View>,
        settings: Vec<ScheduleSetting>,
        calendars: Option<Arc<Store<Item<ConfigMap>>>>,
    ) -> Self {
        let schedules = view.schedules().map(|store| store.stirred());
        let stirred = schedules
            .into_iter()
            .chain(calendars.as_ref().map(|store| store.stirred()))
            .collect();
        Self {
            view,
            settings,
            calendars,
            memo: Mutex::new(Memo {
                stirred,
                fresh: false,
                compiled: Arc::default(),
                stamp: None,
                known: BTreeMap::new(),
                texts: CalendarTexts::new(),
            }),
        }
    }

    /// What is known now. Cheap where nothing changed.
    pub fn current(&self) -> Arc<Compiled> {
        let mut memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        let mut moved = false;
        for stirred in &mut memo.stirred {
            moved |= stirred.has_changed().unwrap_or(false);
            stirred.mark_unchanged();
        }
        if moved || !memo.fresh {
            self.compile(&mut memo);
            memo.fresh = true;
        }
        Arc::clone(&memo.compiled)
    }

    fn compile(&self, memo: &mut Memo) {
        let texts = self.calendars.as_ref().map(|store| texts(store)).unwrap_or_default();
        if texts != memo.texts {
            memo.texts = texts;
            memo.known.clear();
            memo.stamp = None;
        }
        let mut resources = BTreeMap::new();
        let unavailable = self.view.schedules().and_then(|store| {
            for item in store.all() {
                resources.insert(Arc::clone(&item.name), item);
            }
            why_unavailable(&store.state())
        });
        let keys = resources
            .iter()
            .map(|(name, item)| (Arc::clone(name), key(item)))
            .collect();
        let stamp = Stamp { keys, unavailable };
        let schedules = if memo.stamp.as_ref() == Some(&stamp) {
            Arc::clone(&memo.compiled.schedules)
        } else {
            let mut known = BTreeMap::new();
            for (name, key) in &stamp.keys {
                let former = memo.known.get(name).filter(|(former, _)| former == key);
                let schedule = match (former, resources.get(name)) {
                    (Some((_, schedule)), _) => Arc::clone(schedule),
                    (None, Some(item)) => Arc::new(read(item, &memo.texts)),
                    (None, None) => continue,
                };
                known.insert(Arc::clone(name), (key.clone(), schedule));
            }
            let of_cluster = known.values().map(|(_, schedule)| Arc::clone(schedule));
            let of_settings = self.settings.iter().map(|setting| setting.compile(&memo.texts));
            let mut all = Schedules::new(of_cluster.chain(of_settings));
            if let Some(why) = &stamp.unavailable {
                all = all.unavailable(Arc::clone(why));
            }
            memo.known = known;
            memo.stamp = Some(stamp);
            Arc::new(all)
        };
        memo.compiled = Arc::new(Compiled { schedules, resources });
    }
}

fn key(item: &Item<OffHoursSchedule>) -> Key {
    let object = item.object.as_ref();
    Key {
        uid: Arc::clone(&item.uid),
        generation: object.ok().and_then(|object| object.metadata.generation).unwrap_or(0),
        deleting: object.is_ok_and(|object| object.metadata.deletion_timestamp.is_some()),
        unreadable: object.err().cloned(),
    }
}

fn read(item: &Item<OffHoursSchedule>, texts: &CalendarTexts) -> Schedule {
    match &item.object {
        Ok(object) => Schedule::from_resource(object, texts),
        Err(why) => {
            let mut schedule = Schedule::new(Arc::clone(&item.name), Origin::Resource, Err(Arc::clone(why)));
            schedule.uid = Arc::clone(&item.uid);
            schedule
        }
    }
}

/// Why nobody knows which schedules there are. A failed watch is never an empty one.
fn why_unavailable(state: &SourceState) -> Option<Arc<str>> {
    match state {
        SourceState::Filled | SourceState::Failing { .. } => None,
        SourceState::Unfilled { trouble: None } => Some(Arc::from("schedules have not been read yet")),
        SourceState::Unfilled { trouble: Some(why) } => Some(Arc::from(format!("schedules cannot be read: {why}"))),
        SourceState::Forbidden { message } => Some(Arc::from(format!("schedules cannot be read: {message}"))),
        SourceState::Absent => Some(Arc::from(
            "the CustomResourceDefinition offhoursschedules.offhours.platform.io is not installed; install it with \
             `offhours crd | kubectl apply -f -`",
        )),
    }
}

fn texts(store: &Store<Item<ConfigMap>>) -> CalendarTexts {
    let mut texts = CalendarTexts::new();
    for item in store.all() {
        let Ok(map) = &item.object else { continue };
        for (key, text) in map.data.iter().flatten() {
            let place = ConfigMapKey {
                name: item.name.to_string(),
                key: key.clone(),
            };
            texts.insert(place, Arc::from(text.as_str()));
        }
    }
    texts
}
