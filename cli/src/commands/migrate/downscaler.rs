//! py-kube-downscaler and GoKubeDownscaler: a Deployment with flags and variables, and annotations `downscaler/…` on namespaces
//! and workloads.

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotations::{
    self, ASLEEP_UNTIL, AWAKE_UNTIL, DOWN_REPLICAS, DOWNTIME, PROTECTED, REASON, SCHEDULE, TIME_ZONE,
};
use shared::kinds::Kinds;
use shared::record::DOWNSCALER_REPLICAS;

use super::objects::{Object, Objects, flags};
use super::result::{Migration, Place};
use super::times::{Times, set, spec};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// py-kube-downscaler, and hjacobs' kube-downscaler before it.
    Py,
    /// GoKubeDownscaler.
    Go,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Py => "py-kube-downscaler",
            Self::Go => "GoKubeDownscaler",
        }
    }
}

/// Keys of annotations, in the order of [`Times`].
const ANNOTATED: [&str; 4] = [
    "downscaler/uptime",
    "downscaler/downtime",
    "downscaler/upscale-period",
    "downscaler/downscale-period",
];
/// The same as flags.
const FLAGS: [&str; 4] = [
    "default-uptime",
    "default-downtime",
    "upscale-period",
    "downscale-period",
];
/// The same as variables.
const VARIABLES: [&str; 4] = [
    "DEFAULT_UPTIME",
    "DEFAULT_DOWNTIME",
    "UPSCALE_PERIOD",
    "DOWNSCALE_PERIOD",
];
const GRACE: &str = "downscaler/grace-period";
/// Replicas while down: the key of the older product, and the one of the newer.
const REPLICAS: [&str; 2] = ["downscaler/downtime-replicas", "downscaler/downscale-replicas"];
const EXCLUDE: &str = "downscaler/exclude";
/// What both wait for before they touch something new.
const DEFAULT_GRACE: &str = "15m";
/// Flags that change how they run, and mean nothing here.
const HARMLESS: &[&str] = &[
    "interval",
    "debug",
    "once",
    "leader-election",
    "max-retries-on-conflict",
    "api-server-timeout",
    "qps",
    "burst",
    "k",
    "json-logs",
];

/// What the installation says for everything.
#[derive(Debug, Clone)]
struct Installation {
    peer: Peer,
    times: Times,
    replicas: Option<String>,
    grace: String,
    kinds: Vec<Value>,
    /// Only these; empty: all.
    namespaces: Vec<String>,
    excluded: Vec<String>,
    /// Names of workloads that are left alone.
    spared: Vec<String>,
    labels: Vec<(String, String)>,
    /// Nothing is touched that does not ask for it.
    explicit: bool,
}

/// Reads everything of theirs. `assumed`: which of the two wrote annotations where no installation tells.
pub fn migrate(objects: &Objects, kinds: &Kinds, assumed: Peer, now: Timestamp, out: &mut Migration) {
    let installations: Vec<(Object<'_>, &Value, Peer)> = objects
        .of("apps", "Deployment")
        .chain(objects.of("apps", "StatefulSet"))
        .filter_map(|object| {
            let (container, peer) = object
                .containers()
                .find_map(|container| Some((container, image(container)?)))?;
            Some((object, container, peer))
        })
        .collect();
    let annotated = objects
        .iter()
        .any(|object| keys_of(object).any(|key| key.starts_with("downscaler/") && key != DOWNSCALER_REPLICAS));
    if installations.is_empty() && !annotated {
        return;
    }
    if installations.len() > 1 {
        out.differs(format!(
            "there are {} installations; the first, {}, was read: migrate the others from files of their own",
            installations.len(),
            installations
                .first()
                .map(|(object, ..)| object.told())
                .unwrap_or_default()
        ));
    }
    let installation = if let Some((object, container, peer)) = installations.first() {
        out.found.push(format!("{}: {}", peer.name(), object.told()));
        let installation = installation(*object, container, *peer, objects, kinds, out);
        out.stop.push(format!(
            "kubectl scale {} {} -n {} --replicas=0",
            object.kind().to_ascii_lowercase(),
            object.name(),
            object.namespace()
        ));
        if object.0.pointer("/spec/replicas").and_then(Value::as_u64) != Some(0) {
            out.running.push(object.told());
        }
        installation
    } else {
        out.found
            .push(format!("annotations of {}, without an installation", assumed.name()));
        out.note(
                "without the installation its defaults are not known: annotated namespaces and workloads are carried over, of the \
                 default kinds",
            );
        Installation {
            peer: assumed,
            times: Times::default(),
            replicas: None,
            grace: DEFAULT_GRACE.to_owned(),
            kinds: Vec::new(),
            namespaces: Vec::new(),
            excluded: Vec::new(),
            spared: Vec::new(),
            labels: Vec::new(),
            explicit: false,
        }
    };
    Reader {
        installation: &installation,
        objects,
        kinds,
        now,
    }
    .read(out);
}

fn keys_of(object: Object<'_>) -> impl Iterator<Item = &String> {
    let annotations = object.0.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.into_iter().flatten().map(|(key, _)| key)
}

/// Whose image it is, by the last part of its name.
fn image(container: &Value) -> Option<Peer> {
    let image = container.get("image")?.as_str()?.to_ascii_lowercase();
    let last = image.rsplit('/').next()?.split([':', '@']).next()?.to_owned();
    if last.contains("gokubedownscaler") || last.contains("go-kube-downscaler") {
        Some(Peer::Go)
    } else {
        last.contains("kube-downscaler").then_some(Peer::Py)
    }
}

fn list(text: &str) -> Vec<String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn installation(
    object: Object<'_>,
    container: &Value,
    peer: Peer,
    objects: &Objects,
    kinds: &Kinds,
    out: &mut Migration,
) -> Installation {
    let mut flags = flags(container);
    let (variables, unread) = objects.environment(container, object.namespace());
    for variable in unread {
        out.differs(format!(
            "{}: {variable} could not be read; look whether it sets one of {}",
            object.told(),
            VARIABLES.join(", ")
        ));
    }
    let mut take = |name: &str, variable: &str| flags.remove(name).or_else(|| variables.get(variable).cloned());
    let excluded = take("exclude-namespaces", "EXCLUDE_NAMESPACES").map_or_else(
        || match peer {
            Peer::Py => vec!["kube-system".to_owned()],
            Peer::Go => vec!["kube-system".to_owned(), "kube-downscaler".to_owned()],
        },
        |text| list(&text),
    );
    let spared = take("exclude-deployments", "EXCLUDE_DEPLOYMENTS").map_or_else(Vec::new, |text| list(&text));
    let replicas = take("downtime-replicas", "DOWNTIME_REPLICAS").filter(|text| text != "0");
    let grace = take("grace-period", "GRACE_PERIOD");
    let namespaces = take("namespace", "NAMESPACE").map_or_else(Vec::new, |text| list(&text));
    let resources = take("include-resources", "INCLUDE_RESOURCES").unwrap_or_else(|| "deployments".to_owned());
    let labels = take("matching-labels", "MATCHING_LABELS").map_or_else(Vec::new, |text| list(&text));
    let explicit = take("explicit-include", "").is_some_and(|text| text != "false");
    if take("dry-run", "").is_some_and(|text| text != "false") {
        out.differs(
            "it runs with --dry-run and changes nothing; the schedules below act: add `suspend: true` to look first",
        );
    }
    if let Some(annotation) = take("deployment-time-annotation", "") {
        out.differs(format!(
            "--deployment-time-annotation {annotation}: the grace period counts from the creation of a workload here"
        ));
    }
    // The flags win over the variables, as a group.
    let by_flag = Times::of(|key| flags.get(key).cloned(), FLAGS);
    let times = if by_flag.is_set() {
        by_flag
    } else {
        Times::of(|key| variables.get(key).cloned(), VARIABLES)
    };
    for flag in flags.keys() {
        if !FLAGS.contains(&flag.as_str()) && !HARMLESS.contains(&flag.as_str()) {
            out.differs(format!(
                "{}: the flag --{flag} is not known here and was left out",
                object.told()
            ));
        }
    }
    let told = object.told();
    Installation {
        peer,
        times,
        replicas,
        grace: grace.map_or_else(|| DEFAULT_GRACE.to_owned(), |text| duration(&text, &told, out)),
        kinds: included(&resources, kinds, out),
        namespaces,
        excluded,
        spared,
        labels: labels.iter().filter_map(|pattern| plain_label(pattern, out)).collect(),
        explicit,
    }
}

/// Seconds, or a duration with units.
fn duration(text: &str, origin: &str, out: &mut Migration) -> String {
    if annotations::whole(text).is_some() {
        return format!("{text}s");
    }
    if annotations::parse_duration(text).is_some() {
        return text.to_owned();
    }
    out.differs(format!(
        "{origin}: the grace period {text:?} could not be read; {DEFAULT_GRACE} is used"
    ));
    DEFAULT_GRACE.to_owned()
}

/// `kinds` of the schedules.
fn included(resources: &str, kinds: &Kinds, out: &mut Migration) -> Vec<Value> {
    let mut found = Vec::new();
    for resource in list(resources) {
        let mut rows = kinds.named(&resource);
        match (rows.next(), rows.next(), resource.to_ascii_lowercase().as_str()) {
            (Some(row), None, name) => {
                if name == "jobs" {
                    out.differs("jobs: running Jobs are suspended by theirs; here only with `running: true` beside the kind, since that kills their pods");
                }
                if name == "daemonsets" {
                    out.note("a DaemonSet sleeps by a node selector in its template, which makes a revision");
                }
                found.push(json!({"kind": row.kind}));
            }
            (_, _, "horizontalpodautoscalers") => out.differs(
                "horizontalpodautoscalers: an HPA is no workload here, it stands still while its target sleeps; for a partial sleep \
                 write downReplicas, then minReplicas and maxReplicas go down with it",
            ),
            (_, _, "poddisruptionbudgets") => {
                out.differs("poddisruptionbudgets are left as they are: one without pods hinders nothing");
            }
            _ => out.differs(format!(
                "{resource}: this kind is not known; add a row under `kinds` of the settings file"
            )),
        }
    }
    found
}

/// `name=value` where the pattern is plain text.
fn plain_label(pattern: &str, out: &mut Migration) -> Option<(String, String)> {
    let plain = |text: &str| {
        text.chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter))
    };
    let pattern = pattern.trim_start_matches('^').trim_end_matches('$');
    match pattern.split_once('=') {
        Some((key, value)) if plain(key) && plain(value) => Some((key.to_owned(), value.to_owned())),
        _ => {
            out.differs(format!(
                "the label pattern {pattern:?} is a regular expression; write a labelSelector that means the same"
            ));
            None
        }
    }
}

struct Reader<'r> {
    installation: &'r Installation,
    objects: &'r Objects,
    kinds: &'r Kinds,
    now: Timestamp,
}

impl Reader<'_> {
    fn read(&self, out: &mut Migration) {
        let default = self.default_schedule(out);
        for object in self.objects.of("", "Namespace") {
            let place = Place::Namespace(object.name().to_owned());
            let origin = format!("namespace {}", object.name());
            let name = format!("downscaler-{}", object.name());
            self.annotated(object, &place, &origin, &name, default.as_deref(), out);
        }
        for object in self.objects.iter() {
            let Some(row) = self.kinds.by_kind(object.group(), object.kind()) else {
                Self::elsewhere(object, out);
                continue;
            };
            let place = Place::Workload(
                row.group.to_string(),
                row.kind.to_string(),
                object.namespace().to_owned(),
                object.name().to_owned(),
            );
            let name = format!("downscaler-{}-{}", object.namespace(), object.name());
            self.annotated(object, &place, &object.told(), &name, default.as_deref(), out);
            let its_own = object.containers().any(|container| image(container).is_some());
            if !its_own && self.installation.spared.iter().any(|name| name == object.name()) {
                out.annotate(place, PROTECTED, "true");
            }
            if object.annotation(DOWNSCALER_REPLICAS).is_some() {
                out.note(format!(
                    "{} sleeps now; its {DOWNSCALER_REPLICAS} is read at opening time, and removed then",
                    object.told()
                ));
            }
        }
        for name in &self.installation.spared {
            let seen = self.objects.iter().any(|object| object.name() == name);
            // The product's own Deployment need not be spared any more.
            if !seen && !name.contains("downscaler") {
                out.differs(format!(
                    "--exclude-deployments {name}: it was not found (or is a pattern); protect what it means with {PROTECTED}=true"
                ));
            }
        }
    }

    /// Annotations on what has no row, such as an HPA.
    fn elsewhere(object: Object<'_>, out: &mut Migration) {
        if object.kind() != "Namespace" && keys_of(object).any(|key| ANNOTATED.contains(&key.as_str())) {
            out.differs(format!(
                "{}: {} is no workload here; annotate the workload itself",
                object.told(),
                object.kind()
            ));
        }
    }

    /// The schedule of everything that says nothing itself.
    fn default_schedule(&self, out: &mut Migration) -> Option<String> {
        let installation = self.installation;
        if !installation.times.is_set() {
            return None;
        }
        let origin = "the defaults of the installation";
        let mut spec = self.spec(&installation.times, origin, out)?;
        let mut selector = json!({});
        let expression = if installation.namespaces.is_empty() {
            let names = self.excluded_names(out);
            json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names})
        } else {
            json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": installation.namespaces})
        };
        set(
            &mut selector,
            "namespaceSelector",
            json!({"matchExpressions": [expression]}),
        );
        if let [(key, value)] = installation.labels.as_slice() {
            let mut labels = serde_json::Map::new();
            labels.insert(key.clone(), json!(value));
            set(&mut selector, "labelSelector", json!({"matchLabels": labels}));
        } else if !installation.labels.is_empty() {
            out.differs("several --matching-labels mean one of them; one schedule for each is needed, with a labelSelector each");
        }
        if !installation.explicit {
            set(&mut spec, "selector", selector);
        }
        out.schedule("downscaler", &spec, origin)
    }

    /// Names of namespaces that are left alone; patterns are looked up among the namespaces that were read.
    fn excluded_names(&self, out: &mut Migration) -> Vec<String> {
        let mut names = Vec::new();
        for pattern in &self.installation.excluded {
            let bare = pattern.trim_start_matches('^').trim_end_matches('$');
            if bare
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
            {
                names.push(bare.to_owned());
                continue;
            }
            let start = bare.trim_end_matches(".*");
            let plain = start
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
            let present: Vec<String> = self
                .objects
                .of("", "Namespace")
                .map(|object| object.name().to_owned())
                .filter(|name| plain && bare.ends_with(".*") && name.starts_with(start))
                .collect();
            out.differs(format!(
                "--exclude-namespaces {pattern}: a selector has no patterns; these are left out by name: {}. Namespaces to come must \
                 be added, or carry {PROTECTED}=true",
                if present.is_empty() { "none".to_owned() } else { present.join(", ") }
            ));
            names.extend(present);
        }
        names
    }

    fn spec(&self, times: &Times, origin: &str, out: &mut Migration) -> Option<Value> {
        let mut spec = spec(self.installation.peer, times, origin, out)?;
        if !self.installation.kinds.is_empty() {
            set(&mut spec, "kinds", Value::Array(self.installation.kinds.clone()));
        }
        set(&mut spec, "gracePeriod", json!(self.installation.grace));
        if let Some(replicas) = &self.installation.replicas {
            let count = replicas
                .parse::<u32>()
                .map_or_else(|_| json!(replicas), |count| json!(count));
            set(&mut spec, "downReplicas", count);
        }
        Some(spec)
    }

    /// The annotations of one object.
    fn annotated(
        &self,
        object: Object<'_>,
        place: &Place,
        origin: &str,
        name: &str,
        default: Option<&str>,
        out: &mut Migration,
    ) {
        let times = Times::of(|key| object.annotation(key).map(str::to_owned), ANNOTATED);
        if times.is_set()
            && let Some(mut spec) = self.spec(&times, origin, out)
        {
            self.mixed(object, &times, origin, out);
            if let Some(grace) = object.annotation(GRACE) {
                set(&mut spec, "gracePeriod", json!(duration(grace, origin, out)));
            }
            if let Some(name) = out.schedule(name, &spec, origin) {
                out.label(place.clone(), SCHEDULE, &name);
            }
        } else if object.annotation(GRACE).is_some() {
            out.differs(format!(
                "{origin}: {GRACE} beside no times; the grace period is the schedule's here"
            ));
        }
        if let Some(replicas) = REPLICAS.iter().find_map(|key| object.annotation(key)) {
            out.annotate(place.clone(), DOWN_REPLICAS, replicas);
        }
        self.exclusion(object, place, origin, default.filter(|_| !times.is_set()), out);
        Self::forced(object, place, origin, out);
    }

    /// The older product may read uptime here and downtime from a wider place together.
    fn mixed(&self, object: Object<'_>, times: &Times, origin: &str, out: &mut Migration) {
        let other = |one: &Option<String>, wider: &Option<String>| {
            one.is_none() && wider.as_deref().is_some_and(|text| !matches!(text, "always" | "never"))
        };
        let wider = &self.installation.times;
        if self.installation.peer == Peer::Py
            && object.kind() != "Namespace"
            && (other(&times.uptime, &wider.uptime) || other(&times.downtime, &wider.downtime))
        {
            out.note(format!(
                "{origin}: only its own times hold here; the defaults of the installation are not mixed in"
            ));
        }
    }

    fn exclusion(&self, object: Object<'_>, place: &Place, origin: &str, default: Option<&str>, out: &mut Migration) {
        match object.annotation(EXCLUDE).map(str::to_ascii_lowercase).as_deref() {
            None => {}
            Some("true" | "always") => {
                out.annotate(place.clone(), PROTECTED, "true");
                if object.annotation(DOWNSCALER_REPLICAS).is_some() {
                    out.note(format!("{origin}: what is protected and sleeps is woken once; theirs leaves it asleep"));
                }
            }
            Some("false" | "never") => {
                if let Some(default) = default.filter(|_| self.installation.explicit) {
                    out.label(place.clone(), SCHEDULE, default);
                }
            }
            Some(times) => out.differs(format!(
                "{origin}: {EXCLUDE}={times}: protection has no times here; write an exception into its schedule, or wake it by hand"
            )),
        }
        if let Some(until) = object.annotation("downscaler/exclude-until") {
            match instant(until) {
                Some(at) if at <= self.now => {
                    out.note(format!(
                        "{origin}: downscaler/exclude-until={until} is over and was left out"
                    ));
                }
                Some(at) => {
                    out.annotate(place.clone(), AWAKE_UNTIL, &annotations::format_instant(at));
                    out.annotate(place.clone(), REASON, "was downscaler/exclude-until");
                    out.note(format!(
                        "{origin}: until {until} it is kept awake; theirs leaves it as it is"
                    ));
                }
                None => out.differs(format!("{origin}: downscaler/exclude-until={until} could not be read")),
            }
        }
    }

    fn forced(object: Object<'_>, place: &Place, origin: &str, out: &mut Migration) {
        if let Some(force) = object.annotation("downscaler/force-uptime") {
            match force.to_ascii_lowercase().as_str() {
                "false" | "never" => {}
                "true" | "always" => out.annotate(place.clone(), PROTECTED, "true"),
                _ => out.differs(format!(
                    "{origin}: downscaler/force-uptime={force}: write it as an exception (state: Up) of the schedule that holds there"
                )),
            }
        }
        if let Some(force) = object.annotation("downscaler/force-downtime") {
            match force.to_ascii_lowercase().as_str() {
                "false" | "never" => {}
                "true" | "always" => {
                    out.annotate(place.clone(), DOWNTIME, "always");
                    out.annotate(place.clone(), TIME_ZONE, "UTC");
                    out.differs(format!(
                        "{origin}: downscaler/force-downtime: it is down by a schedule in place; a workload's own schedule wins over its \
                         namespace's, and a label over a schedule in place: remove those, or use {ASLEEP_UNTIL}"
                    ));
                }
                _ => out.differs(format!(
                    "{origin}: downscaler/force-downtime={force}: write it as an exception (state: Down) of the schedule that holds there"
                )),
            }
        }
    }
}

/// An instant, or a day (its beginning, UTC).
fn instant(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let padded = [text.to_owned(), format!("{text}Z"), format!("{text}T00:00:00Z")];
    padded.iter().find_map(|text| text.replacen(' ', "T", 1).parse().ok())
}
