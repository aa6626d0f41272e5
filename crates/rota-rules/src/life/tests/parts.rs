//! Parts of a tenant's total share by load.

use super::*;

/// A VM of two vCPUs whose parts are by load, beside another tenant.
fn vm_beside(other: f64) -> World {
    let vm = reserved("vm", 0.4, 20) + "vcpus = 2\nmatching = true\nmatch.vm = \"qemu:vm\"\n";
    let mut world = World::new(model(&(vm + &reserved("other", other, 20))));
    world.appear("vm", 7);
    world.appear("other", 8);
    world.settle();
    world
}

fn parts_of(world: &World) -> Vec<f64> {
    world.view("vm").parts.iter().map(|part| part.fraction()).collect()
}

fn part(world: &mut World, parts: &[f64]) {
    let parts = parts.iter().map(|&part| Share::from_fraction(part).unwrap()).collect();
    world.event(Event::Parted { tenant: world.view("vm").id, parts });
    world.settle();
}

#[test]
fn parts_by_load_come_with_a_table_and_stay_through_edits() {
    let mut world = vm_beside(0.3);
    assert_eq!(parts_of(&world), [0.0; 0]);
    part(&mut world, &[0.6, 0.2]);
    assert_eq!(parts_of(&world), [0.6, 0.2]);
    assert!(world.said("vm: its vCPUs are to have 0.600, 0.200 by their load"));
    let edited = Model { tenants: world.life.model().tenants.clone(), ..world.life.model().clone() };
    world.event(Event::Configured(edited.clone()));
    world.settle();
    assert_eq!(parts_of(&world), [0.6, 0.2]);
    // More than it is promised, or a part too few, is no way to divide it.
    for parts in [&[0.7, 0.2][..], &[0.8]] {
        part(&mut world, parts);
        assert_eq!(parts_of(&world), [0.6, 0.2]);
    }
    let mut edited = edited;
    edited.tenants[0].team.matching = false;
    world.event(Event::Configured(edited));
    world.settle();
    assert_eq!(parts_of(&world), [0.0; 0]);
    part(&mut world, &[0.6, 0.2]);
    assert_eq!(parts_of(&world), [0.0; 0]);
}

/// A small part would have to wait for longer than the shortest period allows.
#[test]
fn parts_without_room_are_taken_back() {
    let mut world = vm_beside(0.3);
    let mut quick = world.life.model().clone();
    let share = Share::from_fraction(0.4).unwrap();
    quick.tenants[0].class = Class::Reserved(Reservation { share, latency_ns: 160_000, capped: false });
    world.event(Event::Configured(quick));
    world.settle();
    part(&mut world, &[0.795, 0.005]);
    assert_eq!(parts_of(&world), [0.0; 0]);
    assert!(world.said("vm: no room for parts by load, they stay"), "{:?}", world.record.said);
    assert_eq!((world.view("vm").state, world.view("vm").refused), (State::Served, None));
    assert!(world.life.is_settled());
}
