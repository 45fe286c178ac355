//! Partitions of cgroup version 2: the shield gets its CPUs exclusively, and all other cgroups lose them.
//!
//! One cgroup at the top, `tahti.shield`, contains the group `rt` for the shield's tasks. No task is moved and no mask
//! is set. The kernel shrinks every other cgroup, and returns the CPUs when the partition is dissolved.
//!
//! - If the kernel has `cpuset.cpus.exclusive` (6.7), the partition is *remote*: `rt` is isolated below a plain group
//!   that passes the CPUs down. A neighbour's `cpuset.cpus` cannot break it. It may have CPUs that `isolcpus=` isolated
//!   at boot, which 6.12 refuses to a local partition.
//! - Older kernels have only the *local* partition: `tahti.shield` itself is isolated.
//!
//! Both enable the controller once more below the top. Then no other program (systemd on `daemon-reload`) can disable
//! it at the top and thereby remove the partition.

use super::{Backend, Context, Draft, PlanError};
use crate::snapshot::{Cgroup, Form, Placement, Snapshot, Target, Value};
use base::CpuSet;

/// The shield's cgroup.
const SHIELD: &str = "tahti.shield";
/// The group inside it for the shield's tasks.
const TASKS: &str = "rt";

/// The back-end for cgroup version 2.
#[derive(Debug)]
pub(super) struct CgroupV2;

/// Kind of partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Isolated below a plain group.
    Remote,
    /// Isolated at the top.
    Local,
}

/// The shield's directories.
struct Dirs {
    mount: String,
    top: String,
    tasks: String,
    layout: Layout,
}

impl Dirs {
    fn new(snapshot: &Snapshot) -> Self {
        let mount = match &snapshot.cgroup {
            Cgroup::V2 { mount, .. } => mount.clone(),
            _ => String::new(),
        };
        // Both files came with the same kernel release.
        let remote = snapshot.files.contains_key(&format!("{mount}/cpuset.cpus.isolated"));
        let layout = if remote { Layout::Remote } else { Layout::Local };
        let top = format!("{mount}/{SHIELD}");
        let tasks = format!("{top}/{TASKS}");
        Self { mount, top, tasks, layout }
    }

    fn partition(&self) -> &str {
        match self.layout {
            Layout::Remote => &self.tasks,
            Layout::Local => &self.top,
        }
    }

    /// Whether the partition exists, valid or not.
    fn stands(&self, snapshot: &Snapshot) -> bool {
        let state = snapshot.file_text(&format!("{}/cpuset.cpus.partition", self.partition()));
        state.is_some_and(|state| state.starts_with("isolated"))
    }

    fn is_own(&self, dir: &str) -> bool {
        dir == self.top || dir.starts_with(&format!("{}/", self.top))
    }
}

impl Backend for CgroupV2 {
    fn name(&self) -> &'static str {
        "isolated partition (cgroup v2)"
    }

    fn check(&self, context: &Context<'_>, errors: &mut Vec<PlanError>) {
        let (snapshot, shield) = (context.snapshot, &context.want.cpus);
        let dirs = Dirs::new(snapshot);
        for dir in snapshot.dirs.iter().filter(|dir| **dir != dirs.mount && !dirs.is_own(dir)) {
            let file = |name: &str| snapshot.file_cpus(&format!("{dir}/{name}")).unwrap_or_default();
            let (cpus, exclusive) = (file("cpuset.cpus"), file("cpuset.cpus.exclusive"));
            let state = snapshot.file_text(&format!("{dir}/cpuset.cpus.partition")).unwrap_or("member");
            let partition = state != "member" && !state.contains("invalid");
            let beside = dir.rfind('/') == Some(dirs.mount.len());
            let taken = if partition { cpus.or(&exclusive) } else { exclusive };
            if taken.intersects(shield) {
                errors.push(PlanError::Overlap { dir: dir.clone(), cpus: taken.and(shield) });
            } else if beside && !cpus.is_empty() && cpus.is_subset(shield) {
                errors.push(PlanError::OnlyHere { dir: dir.clone(), cpus });
            }
        }
        let blocked: Vec<_> = context.deadline_in_the_way().collect();
        if !blocked.is_empty() {
            errors.push(PlanError::Deadline { tasks: blocked });
        }
    }

    fn steps(&self, context: &Context<'_>, draft: &mut Draft) {
        let (snapshot, shield) = (context.snapshot, Value::Cpus(context.want.cpus));
        let dirs = Dirs::new(snapshot);
        if dirs.stands(snapshot) {
            bring_out(context, draft);
        } else {
            remember_masks(context, draft);
        }
        let mut plan = InDir { context, draft };
        let own = "the shield's own cgroup";
        let anchor = "otherwise another program could disable the controller at the top, and the partition with it";
        plan.controller(&dirs.mount, "partitions need the cpuset controller");
        match dirs.layout {
            Layout::Remote => {
                plan.dir(&dirs.top, own);
                plan.controller(&dirs.top, anchor);
                plan.cpus(&dirs.top, "cpuset.cpus.exclusive", &shield, "passes the CPUs down to the partition");
                plan.dir(&dirs.tasks, "the shield's own tasks belong here");
                plan.cpus(&dirs.tasks, "cpuset.cpus.exclusive", &shield, "the CPUs of the partition");
            }
            Layout::Local => {
                shrink_neighbours(&dirs, &mut plan);
                plan.dir(&dirs.top, own);
                plan.cpus(&dirs.top, "cpuset.cpus", &shield, "the CPUs of the partition");
            }
        }
        if !plan.made_anew(dirs.partition()) {
            plan.text(
                dirs.partition(),
                "cpuset.cpus.partition",
                (Form::Text, "member", "isolated"),
                "removes the CPUs from all other tasks and from load balancing",
            );
        }
        if dirs.layout == Layout::Local {
            plan.controller(&dirs.top, anchor);
            plan.dir(&dirs.tasks, "the shield's own tasks belong here");
        }
        context.note_bound(draft);
    }

    fn shield_dir(&self, snapshot: &Snapshot) -> Option<String> {
        Some(Dirs::new(snapshot).tasks)
    }

    fn own_dirs(&self, snapshot: &Snapshot) -> Vec<String> {
        let dirs = Dirs::new(snapshot);
        vec![dirs.top, dirs.tasks]
    }
}

/// Records the masks that the kernel may forget when a partition is created or dissolved: those of kernel threads
/// before 7.0, of every task before 6.2, and those that tasks got from the boot line. Nothing is written now; the
/// release restores them.
fn remember_masks(context: &Context<'_>, draft: &mut Draft) {
    for (key, task) in &context.snapshot.tasks {
        if task.own.is_some() && !task.bound && !context.is_resident(task) {
            let label = format!("task {} ({})", key.tid, task.comm);
            let why = "remembered: the kernel may forget this mask when the partition comes or goes";
            draft.remember(context, Target::Task { key: *key }, &label, why);
        }
    }
}

/// Moves away tasks on the shielded CPUs of an active partition: kernel threads that were started later or that CPU
/// hotplug brought back, and on old kernels tasks that were moved to the top group.
fn bring_out(context: &Context<'_>, draft: &mut Draft) {
    for (key, task) in context.intruders() {
        if task.bound || context.spare.contains(task) {
            continue;
        }
        let left = task.cpus.minus(&context.want.cpus);
        let cpus = if left.is_empty() { context.housekeeping } else { left };
        let place = Placement { cpuset: task.cpuset.clone(), cpus, own: true };
        let label = format!("task {} ({})", key.tid, task.comm);
        let target = Target::Task { key: *key };
        let step = draft.step(context, target, Value::Place(place), &label, "it came to the shielded CPUs later");
        if let Some(step) = step {
            step.may_refuse = Some("the task may be ending, or be bound by the kernel".to_owned());
        }
    }
}

/// A local partition tolerates no overlap with the CPU lists of neighbouring cgroups.
fn shrink_neighbours(dirs: &Dirs, plan: &mut InDir<'_, '_>) {
    let snapshot = plan.context.snapshot;
    for dir in snapshot.dirs.iter().filter(|dir| dir.rfind('/') == Some(dirs.mount.len()) && !dirs.is_own(dir)) {
        let cpus = snapshot.file_cpus(&format!("{dir}/cpuset.cpus")).unwrap_or_default();
        if cpus.intersects(&plan.context.want.cpus) {
            let left = Value::Cpus(cpus.minus(&plan.context.want.cpus));
            plan.cpus(dir, "cpuset.cpus", &left, "no other cgroup at the top may list the partition's CPUs");
        }
    }
}

/// Steps on the files of a directory that exists or is created by the plan.
struct InDir<'a, 'b> {
    context: &'a Context<'a>,
    draft: &'b mut Draft,
}

impl InDir<'_, '_> {
    fn dir(&mut self, dir: &str, why: &str) {
        self.draft.step(self.context, Target::Dir { path: dir.to_owned() }, Value::Present, dir, why);
    }

    fn controller(&mut self, dir: &str, why: &str) {
        self.text(dir, "cgroup.subtree_control", (Form::Controller, "-cpuset", "+cpuset"), why);
    }

    /// Recreates a partition that a neighbour broke. It stays broken, whatever is written, until it has been a plain
    /// group again (6.1). Returns whether it was broken.
    fn made_anew(&mut self, dir: &str) -> bool {
        let path = format!("{dir}/cpuset.cpus.partition");
        let target = Target::File { path: path.clone(), form: Form::Text };
        let found = self.context.snapshot.get(&target);
        let broken = found.text().is_some_and(|state| state.contains("invalid"));
        if broken {
            let member = Value::Text("member".to_owned());
            self.draft.step_from(target.clone(), found, member.clone(), &path, "the partition is broken");
            let isolated = Value::Text("isolated".to_owned());
            self.draft.step_from(target, member, isolated, &path, "makes the partition again");
        }
        broken
    }

    fn cpus(&mut self, dir: &str, name: &str, to: &Value, why: &str) {
        self.file(dir, name, Form::List, Value::Cpus(CpuSet::EMPTY), to.clone(), why);
    }

    /// `values` are the file's format, its value in a new directory, and the requested value.
    fn text(&mut self, dir: &str, name: &str, values: (Form, &str, &str), why: &str) {
        let (form, fresh, to) = values;
        self.file(dir, name, form, Value::Text(fresh.to_owned()), Value::Text(to.to_owned()), why);
    }

    fn file(&mut self, dir: &str, name: &str, form: Form, fresh: Value, to: Value, why: &str) {
        let path = format!("{dir}/{name}");
        let target = Target::File { path: path.clone(), form };
        // The files are created with their directory and with the controller.
        let from = match self.context.snapshot.get(&target) {
            Value::Absent => fresh,
            from => from,
        };
        self.draft.step_from(target, from, to, &path, why);
    }
}
