//! Steps that keep interrupts away from the shielded CPUs.

use super::{Context, Draft};
use crate::snapshot::{Form, IrqKey, Target, Value};
use base::CpuSet;

/// Initial affinity of interrupts that are requested later.
const DEFAULT_AFFINITY: &str = "/proc/irq/default_smp_affinity";

/// Possible reason for a refusal.
const REFUSES: &str = "the kernel manages this interrupt itself, or its chip cannot move it; \
    boot with isolcpus=managed_irq, or give the device fewer queues";

/// Excludes the CPUs from irqbalance. This comes first, because irqbalance would otherwise revert the other steps.
pub(super) fn irqbalance(context: &Context<'_>, draft: &mut Draft) {
    let Some(irqbalance) = &context.snapshot.irqbalance else { return };
    let banned = irqbalance.banned.or(&context.want.cpus);
    draft.step(
        context,
        Target::Irqbalance,
        Value::Cpus(banned),
        "irqbalance",
        "or it would bring the interrupts back every ten seconds",
    );
}

/// Removes the shielded CPUs from the affinity of every interrupt and from the default, except for interrupts placed
/// there.
pub(super) fn interrupts(context: &Context<'_>, draft: &mut Draft) {
    let shield = &context.want.cpus;
    if let Some(now) = context.snapshot.file_cpus(DEFAULT_AFFINITY) {
        let left = now.minus(shield);
        let to = if left.is_empty() { context.housekeeping } else { left };
        let target = Target::File { path: DEFAULT_AFFINITY.into(), form: Form::Mask };
        draft.step(
            context,
            target,
            Value::Cpus(to),
            "new interrupts",
            "interrupts of devices added later also stay off the shielded CPUs",
        );
    }
    let placed = |key: &IrqKey| context.want.irqs.iter().find(|placed| key.0.contains(&placed.words));
    for placed in &context.want.irqs {
        if !context.snapshot.irqs.keys().any(|key| key.0.contains(&placed.words)) {
            let text = "no such interrupt has a handler yet; apply again once its device is open".to_owned();
            draft.note(&format!("interrupt {:?}", placed.words), text);
        }
    }
    for (key, irq) in &context.snapshot.irqs {
        let Some(placed) = placed(key) else { continue };
        let label = format!("interrupt {} ({key})", irq.number);
        let target = Target::Irq { key: key.clone() };
        let to = Value::Cpus(CpuSet::single(placed.cpu));
        if let Some(step) = draft.step(context, target, to, &label, "its handler works there") {
            step.may_refuse = Some(REFUSES.into());
        }
    }
    let others =
        context.snapshot.irqs.iter().filter(|(key, irq)| placed(key).is_none() && irq.requested.intersects(shield));
    for (key, irq) in others {
        let left = irq.requested.minus(shield).and(&context.snapshot.cpus.online);
        let to = if left.is_empty() { context.housekeeping } else { left };
        let label = format!("interrupt {} ({key})", irq.number);
        let target = Target::Irq { key: key.clone() };
        let step = draft.step(context, target, Value::Cpus(to), &label, "its handler would interrupt the shielded CPU");
        if let Some(step) = step {
            step.may_refuse = Some(REFUSES.into());
        }
    }
}
