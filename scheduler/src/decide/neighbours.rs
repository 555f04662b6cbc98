//! The facts of what stands beside workloads, and which workload each of them concerns. (Client not required.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shared::annotations::{PROTECTED, parse_bool};
use shared::api::EnforcementMode;
use shared::hpa::Hpa;
use shared::policy::Schedule;
use shared::record;
use shared::workload::{Namespace, ObjectRef, Workload};

use super::action::Skip;
use super::beside::{Look, Unit, Want};
use super::memory::Memory;
use super::snapshot::{Dirty, Snapshot};
use crate::argo::{self, Application, Applications, State};
use crate::flux::{self, FluxObject};
use crate::hpa::{Autoscalers, Backup};

/// How far a source of facts can be relied on: `Err` says why not at all.
pub type Sight = Result<(), Arc<str>>;

/// What stands beside workloads.
#[derive(Debug, Clone)]
pub struct Neighbours {
    hpas: BTreeMap<ObjectRef, Arc<Hpa>>,
    hpas_of: BTreeMap<ObjectRef, BTreeSet<ObjectRef>>,
    backups: BTreeMap<ObjectRef, Arc<Backup>>,
    backups_of: BTreeMap<ObjectRef, BTreeSet<ObjectRef>>,
    states: BTreeMap<ObjectRef, Arc<State>>,
    state_of: BTreeMap<ObjectRef, ObjectRef>,
    flux: BTreeMap<ObjectRef, Arc<FluxObject>>,
    /// The workloads whose labels name a Flux object.
    flux_members: BTreeMap<ObjectRef, BTreeSet<ObjectRef>>,
    /// Argo CD's Applications.
    pub applications: Applications,
    /// Whether our ConfigMaps can be read.
    pub state_sight: Sight,
    /// Whether Applications can be read; where there are none at all, they can.
    pub argo_sight: Sight,
    /// Whether Flux' objects can be read.
    pub flux_sight: Sight,
    /// The webhook runs, so that what is down stays down even under an autoscaler or a sync.
    pub webhook: bool,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            hpas: BTreeMap::new(),
            hpas_of: BTreeMap::new(),
            backups: BTreeMap::new(),
            backups_of: BTreeMap::new(),
            states: BTreeMap::new(),
            state_of: BTreeMap::new(),
            flux: BTreeMap::new(),
            flux_members: BTreeMap::new(),
            applications: Applications::default(),
            state_sight: Ok(()),
            argo_sight: Ok(()),
            flux_sight: Ok(()),
            webhook: false,
        }
    }
}

/// What an HPA scales, as a workload.
fn scaled(hpa: &Hpa) -> Option<ObjectRef> {
    let target = hpa.target.as_ref()?;
    Some(ObjectRef {
        group: Arc::clone(&target.group),
        kind: Arc::clone(&target.kind),
        namespace: Arc::clone(&hpa.object.namespace),
        name: Arc::clone(&target.name),
    })
}

fn index(of: &mut BTreeMap<ObjectRef, BTreeSet<ObjectRef>>, target: &ObjectRef, object: &ObjectRef, there: bool) {
    if there {
        of.entry(target.clone()).or_default().insert(object.clone());
    } else if let Some(set) = of.get_mut(target) {
        set.remove(object);
        if set.is_empty() {
            of.remove(target);
        }
    }
}

impl Neighbours {
    /// Takes in an HPA.
    pub fn set_hpa(&mut self, hpa: &Arc<Hpa>, dirty: &mut Dirty) {
        let object = hpa.object.object_ref();
        let former = self.hpas.insert(object.clone(), Arc::clone(hpa));
        let (was, is) = (former.as_deref().and_then(scaled), scaled(hpa));
        if was != is {
            if let Some(target) = &was {
                index(&mut self.hpas_of, target, &object, false);
            }
            if let Some(target) = &is {
                index(&mut self.hpas_of, target, &object, true);
            }
        }
        dirty.units.extend(was.into_iter().chain(is).map(Unit::Autoscalers));
    }

    /// Takes in that an HPA is gone.
    pub fn remove_hpa(&mut self, object: &ObjectRef, dirty: &mut Dirty) {
        if let Some(target) = self.hpas.remove(object).as_deref().and_then(scaled) {
            index(&mut self.hpas_of, &target, object, false);
            dirty.units.insert(Unit::Autoscalers(target));
        }
    }

    /// All HPAs.
    pub fn hpas(&self) -> impl Iterator<Item = &ObjectRef> {
        self.hpas.keys()
    }

    /// The UIDs of all HPAs.
    pub fn hpa_uids(&self) -> BTreeSet<&str> {
        self.hpas.values().map(|hpa| &*hpa.object.uid).collect()
    }

    /// Takes in the backup of an HPA.
    pub fn set_backup(&mut self, backup: &Arc<Backup>, dirty: &mut Dirty) {
        self.remove_backup(&backup.object, dirty);
        index(&mut self.backups_of, &backup.target, &backup.object, true);
        dirty.units.insert(Unit::Autoscalers(backup.target.clone()));
        self.backups.insert(backup.object.clone(), Arc::clone(backup));
    }

    /// Takes in that the backup of an HPA is gone.
    pub fn remove_backup(&mut self, object: &ObjectRef, dirty: &mut Dirty) {
        if let Some(backup) = self.backups.remove(object) {
            index(&mut self.backups_of, &backup.target, object, false);
            dirty.units.insert(Unit::Autoscalers(backup.target.clone()));
        }
    }

    /// Takes in what a ConfigMap keeps of an Application.
    pub fn set_state(&mut self, state: &Arc<State>, dirty: &mut Dirty) {
        self.remove_state(&state.object, dirty);
        self.state_of.insert(state.application.clone(), state.object.clone());
        dirty.units.insert(Unit::Application(state.application.clone()));
        self.states.insert(state.object.clone(), Arc::clone(state));
    }

    /// Takes in that such a ConfigMap is gone.
    pub fn remove_state(&mut self, object: &ObjectRef, dirty: &mut Dirty) {
        if let Some(state) = self.states.remove(object) {
            self.state_of.remove(&state.application);
            dirty.units.insert(Unit::Application(state.application.clone()));
        }
    }

    /// The ConfigMaps that keep something.
    pub fn config_maps(&self) -> impl Iterator<Item = &ObjectRef> {
        self.backups.keys().chain(self.states.keys())
    }

    /// Takes in an Application.
    pub fn set_application(&mut self, application: &Arc<Application>, dirty: &mut Dirty) {
        // Whom it concerned before counts as well as whom it concerns now.
        let reference = application.reference();
        if self.applications.set(application) {
            dirty.everything = true;
        }
        dirty.units.insert(Unit::Application(reference));
    }

    /// Takes in that an Application is gone.
    pub fn remove_application(&mut self, reference: &ObjectRef, dirty: &mut Dirty) {
        if self.applications.remove(reference).is_some() {
            dirty.everything = true;
        }
        dirty.units.insert(Unit::Application(reference.clone()));
    }

    /// Takes in a Flux object.
    pub fn set_flux(&mut self, object: &Arc<FluxObject>, dirty: &mut Dirty) {
        let reference = object.object.object_ref();
        self.flux.insert(reference.clone(), Arc::clone(object));
        dirty.units.insert(Unit::Flux(reference));
    }

    /// Takes in that a Flux object is gone.
    pub fn remove_flux(&mut self, reference: &ObjectRef, dirty: &mut Dirty) {
        if self.flux.remove(reference).is_some() {
            dirty.units.insert(Unit::Flux(reference.clone()));
        }
    }

    /// Takes in that a workload changed.
    pub(super) fn follow(&mut self, object: &ObjectRef, former: Option<&Workload>, present: Option<&Workload>) {
        let (was, is) = (former.and_then(flux::owner), present.and_then(flux::owner));
        if was != is {
            if let Some(owner) = &was {
                index(&mut self.flux_members, owner, object, false);
            }
            if let Some(owner) = &is {
                index(&mut self.flux_members, owner, object, true);
            }
        }
    }

    /// All Flux objects.
    pub fn flux(&self) -> impl Iterator<Item = &ObjectRef> {
        self.flux.keys()
    }

    /// What stands beside a workload.
    pub fn units_of(&self, workload: &Workload, namespace: Option<&Namespace>) -> Vec<Unit> {
        let object = workload.object_ref();
        let mut units = Vec::new();
        if let Some((_, applications)) = self.applications.of(workload, namespace) {
            units.extend(applications.into_iter().map(Unit::Application));
        }
        if !self.flux.is_empty()
            && let Some(owner) = flux::owner(workload).filter(|owner| self.flux.contains_key(owner))
        {
            units.push(Unit::Flux(owner));
        }
        if self.hpas_of.contains_key(&object) || self.backups_of.contains_key(&object) {
            units.push(Unit::Autoscalers(object));
        }
        units
    }

    /// All units.
    pub fn units(&self) -> BTreeSet<Unit> {
        let targets = self.hpas_of.keys().chain(self.backups_of.keys()).cloned();
        let applications = self.applications.all().chain(self.state_of.keys()).cloned();
        targets
            .map(Unit::Autoscalers)
            .chain(applications.map(Unit::Application))
            .chain(self.flux.keys().cloned().map(Unit::Flux))
            .collect()
    }

    /// The object on which trouble of a unit is told: its UID, too. `None`: it is told on the workload.
    pub fn place(&self, unit: &Unit) -> Option<(ObjectRef, Arc<str>)> {
        match unit {
            Unit::Autoscalers(_) => None,
            Unit::Application(reference) => {
                let application = self.applications.get(reference)?;
                Some((reference.clone(), Arc::clone(&application.object.uid)))
            }
            Unit::Flux(reference) => {
                let object = self.flux.get(reference)?;
                Some((reference.clone(), Arc::clone(&object.object.uid)))
            }
        }
    }

    fn autoscalers<'a>(&'a self, target: &'a ObjectRef, snapshot: &'a Snapshot) -> Autoscalers<'a> {
        let of = |index: &'a BTreeMap<ObjectRef, BTreeSet<ObjectRef>>| index.get(target).into_iter().flatten();
        let count = |workload: &Arc<Workload>| record::count(workload.knobs.first()?.value.as_ref()?);
        Autoscalers {
            target,
            count: snapshot.workload(target).and_then(count),
            hpas: of(&self.hpas_of)
                .filter_map(|object| self.hpas.get(object))
                .map(AsRef::as_ref)
                .collect(),
            backups: of(&self.backups_of)
                .filter_map(|object| self.backups.get(object))
                .map(AsRef::as_ref)
                .collect(),
            own_namespace: &snapshot.own_namespace,
            blind: self.state_sight.as_ref().err().map(AsRef::as_ref),
            terminating: snapshot
                .namespace(&target.namespace)
                .is_some_and(|namespace| namespace.terminating),
        }
    }
}

impl Snapshot {
    /// The HPAs that scale an object. `None`: there are none, nor backups of any.
    pub fn autoscalers<'a>(&'a self, object: &'a ObjectRef) -> Option<Autoscalers<'a>> {
        let some = self.beside.hpas_of.contains_key(object) || self.beside.backups_of.contains_key(object);
        some.then(|| self.beside.autoscalers(object, self))
    }

    /// What stands beside a workload.
    pub fn units_of(&self, workload: &Workload) -> Vec<Unit> {
        let namespace = self.namespace(&workload.namespace).map(AsRef::as_ref);
        self.beside.units_of(workload, namespace)
    }

    /// The workloads that a unit stands beside.
    pub fn workloads_of(&self, unit: &Unit) -> Vec<ObjectRef> {
        let belongs = |workload: &Workload| self.units_of(workload).contains(unit);
        match unit {
            Unit::Autoscalers(target) => self.workload(target).map(|_| target.clone()).into_iter().collect(),
            Unit::Application(application) => {
                let places = self.beside.applications.namespaces(application);
                let listing = self.namespaces().filter(|namespace| {
                    !places.contains(&namespace.name)
                        && self.beside.applications.listed(namespace).contains(application)
                });
                let listing: Vec<_> = listing.map(|namespace| Arc::clone(&namespace.name)).collect();
                let places: Vec<_> = places.into_iter().chain(listing).collect();
                places
                    .iter()
                    .flat_map(|place| self.in_namespace(place))
                    .filter(|(_, workload)| belongs(workload))
                    .map(|(object, _)| object.clone())
                    .collect()
            }
            Unit::Flux(owner) => self
                .beside
                .flux_members
                .get(owner)
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
        }
    }

    /// Looks at a unit: what is to be written, and whether its workloads may be put down.
    pub fn look(&self, unit: &Unit, want: &Want, memory: &Memory, now: jiff::Timestamp) -> Look {
        let look = match unit {
            Unit::Autoscalers(target) => self.beside.autoscalers(target, self).look(want, memory, now),
            Unit::Application(reference) => self.look_application(reference, want, memory, now),
            Unit::Flux(reference) => match (self.beside.flux.get(reference), want) {
                (Some(object), Want::Down { schedule, .. }) if !pauses_flux(schedule.as_ref()) => {
                    flux::look(object, &Want::Up(schedule.clone()), false, &memory.pauses, now)
                }
                (Some(object), _) => {
                    let held = self.holds(want.schedule());
                    flux::look(object, want, held, &memory.pauses, now)
                }
                (None, _) => Look::settled(),
            },
        };
        look.with_failures(memory, now)
    }

    /// Whether the webhook holds what this schedule put down.
    fn holds(&self, schedule: Option<&Arc<Schedule>>) -> bool {
        let mode = schedule.map_or_else(EnforcementMode::default, |schedule| schedule.enforcement.mode);
        self.beside.webhook && matches!(mode, EnforcementMode::Rewrite | EnforcementMode::Deny)
    }

    fn look_application(&self, reference: &ObjectRef, want: &Want, memory: &Memory, now: jiff::Timestamp) -> Look {
        let beside = &self.beside;
        let state = beside
            .state_of
            .get(reference)
            .and_then(|object| beside.states.get(object))
            .map(AsRef::as_ref);
        let Some(application) = beside.applications.get(reference) else {
            let mut look = Look::settled();
            // What is gone needs no record; what cannot be seen may still be there.
            if let Some(state) = state.filter(|_| beside.argo_sight.is_ok() && self.forced.is_none()) {
                look.moves.push(argo::dropped(state, want));
            }
            return look;
        };
        let schedule = want.schedule();
        let asked = schedule.and_then(|schedule| schedule.argo.as_ref());
        let up;
        let want = match want {
            Want::Down { schedule, .. } if !asked.is_some_and(|argo| argo.pause) => {
                up = Want::Up(schedule.clone());
                &up
            }
            want => want,
        };
        let known = argo::Known {
            application,
            state,
            pauses: &memory.pauses,
            own_namespace: &self.own_namespace,
            blind: beside.state_sight.as_ref().err().map(AsRef::as_ref),
            held: self.holds(schedule),
            sync: asked.is_some_and(|argo| argo.sync),
            terminate: asked.is_some_and(|argo| argo.terminate),
        };
        argo::look(&known, want, now)
    }

    /// Why a workload may not be put down yet, and what else is wrong beside it. `None`: it may.
    pub fn gate(
        &self,
        units: &[Unit],
        want: &Want,
        memory: &Memory,
        now: jiff::Timestamp,
    ) -> (Option<Skip>, Option<Skip>) {
        let mut closed = None;
        let mut trouble = None;
        let argo = want
            .schedule()
            .and_then(|schedule| schedule.argo.as_ref())
            .filter(|argo| argo.pause);
        if let (Some(_), Err(why)) = (argo, &self.beside.argo_sight) {
            closed = Look::refused("ApplicationsUnknown", format!("Applications cannot be read: {why}")).closed;
        }
        if let (true, Err(why)) = (pauses_flux(want.schedule()), &self.beside.flux_sight) {
            closed = Look::refused("FluxUnknown", format!("Flux objects cannot be read: {why}")).closed;
        }
        for unit in units {
            if let (Unit::Application(application), Some(argo)) = (unit, argo)
                && argo.strict_protected
                && let Some(protected) = self.protected_beside(unit)
            {
                closed = Look::refused(
                    "ApplicationProtected",
                    format!(
                        "Application {} has a protected workload ({protected}): it is not paused, and none of its \
                         workloads is put to sleep (argo.strictProtected)",
                        application.name
                    ),
                )
                .closed;
                continue;
            }
            let look = self.look(unit, want, memory, now);
            closed = closed.or(look.closed);
            trouble = trouble.or(look.trouble);
        }
        (closed, trouble)
    }

    /// A protected workload that a unit stands beside.
    pub fn protected_beside(&self, unit: &Unit) -> Option<ObjectRef> {
        self.workloads_of(unit).into_iter().find(|object| {
            self.workload(object).is_some_and(|workload| {
                let namespace = self.namespace(&workload.namespace);
                let own = workload.annotation(PROTECTED).or_else(|| workload.label(PROTECTED));
                let inherited = || {
                    let namespace = namespace?;
                    let label = || namespace.labels.as_ref()?.get(PROTECTED).map(AsRef::as_ref);
                    namespace.annotation(PROTECTED).or_else(label)
                };
                own.or_else(inherited)
                    .is_some_and(|text| parse_bool(PROTECTED, text) == Ok(true))
            })
        })
    }
}

fn pauses_flux(schedule: Option<&Arc<Schedule>>) -> bool {
    schedule
        .and_then(|schedule| schedule.flux.as_ref())
        .is_some_and(|flux| flux.pause)
}
