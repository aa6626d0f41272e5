//! CPUs that serve their vCPUs in windows give all of them their budgets net of changes of task, if all of them always
//! want to run and the one goes first whose window ends first.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rota_model::TenantId;
use rota_plan::{Options, plan};
use rota_rules::planning::source;
use rota_table::{CpuView, TableView, encode, layout};

use crate::hosts::models;

/// How many hosts are drawn.
const HOSTS: u32 = 2_000;

/// One vCPU in its present window.
struct Local {
    budget_ns: u64,
    claim_ns: u64,
    period_ns: u64,
    /// When its window ends.
    end_ns: u64,
    /// What it has not had of its claim.
    left_ns: u64,
    /// What it has had, net.
    net_ns: u64,
}

/// A CPU's vCPUs, just before the table's start.
fn locals(view: &TableView, cpu: &CpuView) -> Vec<Local> {
    let vcpus = cpu.locals.iter().filter_map(|vcpu| view.vcpus().get(vcpu as usize));
    let local = |vcpu: layout::Vcpu| Local {
        budget_ns: vcpu.budget_ns.into(),
        claim_ns: vcpu.window_ns.into(),
        period_ns: vcpu.period_ns.into(),
        end_ns: 0,
        left_ns: 0,
        net_ns: vcpu.budget_ns.into(),
    };
    vcpus.map(local).collect()
}

/// The most that one of them comes short of its budget in a window. Whoever the CPU changes to pays `switch_ns`.
fn most_short(locals: &mut [Local], switch_ns: u64, length_ns: u64) -> u64 {
    let (mut now_ns, mut runs, mut change_ns, mut short_ns) = (0, None, 0, 0);
    loop {
        for local in locals.iter_mut().filter(|local| local.end_ns == now_ns) {
            short_ns = short_ns.max(local.left_ns).max(local.budget_ns.saturating_sub(local.net_ns));
            (local.left_ns, local.net_ns) = (local.claim_ns, 0);
            local.end_ns += local.period_ns;
        }
        if now_ns == length_ns {
            return short_ns;
        }
        let next_ns = locals.iter().map(|local| local.end_ns).min().unwrap_or(length_ns);
        let waiting = locals.iter_mut().enumerate().filter(|(_, local)| local.left_ns > 0);
        let first = waiting.min_by_key(|(place, local)| (local.end_ns, runs != Some(*place)));
        let Some((place, local)) = first else {
            (now_ns, runs) = (next_ns, None);
            continue;
        };
        if runs.replace(place) != Some(place) {
            change_ns = switch_ns;
        }
        let used_ns = local.left_ns.min(next_ns - now_ns);
        let lost_ns = change_ns.min(used_ns);
        change_ns -= lost_ns;
        local.left_ns -= used_ns;
        local.net_ns += used_ns - lost_ns;
        now_ns += used_ns;
    }
}

#[test]
fn cpus_in_windows_give_everybody_its_net_budget() {
    let [alike, mixed] = [const { Cell::new(0) }; 2];
    let config = Config { failure_persistence: None, ..Config::with_cases(HOSTS) };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]));
    let outcome = runner.run(&models(), |model| {
        let ids: Vec<TenantId> = (0..model.tenants.len() as TenantId).collect();
        let Ok(plan) = plan(&model, &Options::default()) else { return Ok(()) };
        let bytes = encode(&source(&plan, &ids, model.host.costs)).expect("it can be encoded");
        let view = TableView::new(&bytes).expect("a table");
        for (number, cpu) in view.cpus().enumerate() {
            if cpu.record.flags & layout::CPU_WINDOWS == 0 {
                continue;
            }
            let mut locals = locals(&view, &cpu);
            let is_mixed = locals.iter().any(|local| local.period_ns != locals[0].period_ns);
            let seen = if is_mixed { &mixed } else { &alike };
            seen.set(seen.get() + 1);
            let length_ns = view.header().length_ns.into();
            let short_ns = most_short(&mut locals, cpu.record.switch_ns.into(), length_ns);
            prop_assert_eq!(short_ns, 0, "CPU {}", number);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    println!("{} CPUs of vCPUs with one period, {} of such with several", alike.get(), mixed.get());
    assert!(alike.get().min(mixed.get()) > HOSTS / 10, "too few of some");
}
