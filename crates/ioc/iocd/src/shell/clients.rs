//! `casr`: the Channel Access server and its clients, in the format of C, followed by counters.

use crate::engine::Engine;
use ca::server::{CircuitId, CircuitInfo};
use canet::config::ServerConfig;
use db::Channel;
use std::fmt::{Display, Write as _};

/// Level 1 lists clients and addresses, 2 channels and the counters of each circuit, 3 the access rights of each channel.
pub(super) fn report(engine: &mut Engine, level: u64) -> String {
    let mut out = String::from("Channel Access Server V4.13\n");
    let mut each = String::new();
    let mut count = 0;
    for (id, circuit) in engine.server.circuits() {
        count += 1;
        if level > 0 {
            one_client(&mut each, engine, id, &circuit, level);
        }
    }
    let end = if level > 0 { ":" } else { "." };
    let _ = match count {
        0 => writeln!(out, "No clients connected."),
        _ => writeln!(out, "{count} client{} connected{end}", if count == 1 { "" } else { "s" }),
    };
    out.push_str(&each);
    if level > 0 {
        if let Some(config) = &engine.config {
            addresses(&mut out, config, engine.net.tcp_port);
        }
        counted(&mut out, engine);
    }
    out
}

fn one_client(out: &mut String, engine: &Engine, id: CircuitId, circuit: &CircuitInfo<'_>, level: u64) {
    let CircuitInfo { user, host, address, priority, minor, channels, .. } = circuit;
    let _ = writeln!(out, "    TCP client at {address} '{host}':");
    let plural = if *channels == 1 { "" } else { "s" };
    let _ = writeln!(out, "\tUser '{user}', V4.{minor}, Priority = {priority}, {channels} Channel{plural}");
    if level < 2 {
        return;
    }
    let store = &engine.store;
    for (peer, opened, subscriptions) in engine.server.channels_of(id) {
        let Some(channel) = store.channel(opened.handle) else { continue };
        let _ = writeln!(out, "        Channel: '{}'", name_of(engine, channel));
        if level > 2 {
            let access = store.guard.access(&store.db, channel, &store.db.info(channel), peer);
            let (read, write) = (if access.read { 'r' } else { '-' }, if access.write { 'w' } else { '-' });
            let _ = writeln!(out, "            # on eventq={subscriptions}, access={read}{write}");
        }
    }
    let counters = &circuit.counters;
    let _ = writeln!(
        out,
        "\t{} subscriptions, {} requests, {} updates, {} replaced, {} errors, {} bytes wait{}",
        circuit.subscriptions,
        counters.requests,
        counters.updates,
        counters.replaced,
        counters.errors,
        circuit.unsent,
        if circuit.events_off { ", updates stopped by the client" } else { "" }
    );
}

/// Name of the record and, unless it is VAL, of the field.
fn name_of(engine: &Engine, channel: &Channel) -> String {
    let db = &engine.store.db;
    let record = db.name_of(channel.record);
    let long = if channel.long_string { "$" } else { "" };
    let field = match db.fields(channel.record).get(usize::from(channel.field)) {
        _ if channel.type_name => "RTYP",
        Some(def) if def.name == "VAL" && long.is_empty() => return record.to_owned(),
        Some(def) => &def.name,
        None => return record.to_owned(),
    };
    format!("{record}.{field}{long}")
}

/// Listening addresses of the server, and destinations of its beacons.
fn addresses(out: &mut String, config: &ServerConfig, tcp_port: u16) {
    for interface in &config.interfaces {
        let _ = writeln!(out, "CAS-TCP server on {interface}:{tcp_port} with");
        let _ = writeln!(out, "    CAS-UDP name server on {interface}:{}", config.port);
    }
    let many = |count: usize| if count == 1 { "" } else { "es" };
    if !config.groups.is_empty() {
        let count = config.groups.len();
        let _ = writeln!(out, "Monitoring {count} multicast address{}:", many(count));
        list(out, config.groups.iter().map(|group| format!("{group}:{}", config.port)));
    }
    let count = config.beacons.len();
    let _ = writeln!(out, "Sending CAS-beacons to {count} address{}:", many(count));
    list(out, &config.beacons);
    if !config.ignored.is_empty() {
        let _ = writeln!(out, "Ignoring UDP messages from address{}", many(config.ignored.len()));
        list(out, &config.ignored);
    }
}

fn list(out: &mut String, lines: impl IntoIterator<Item = impl Display>) {
    for line in lines {
        let _ = writeln!(out, "    {line}");
    }
}

fn counted(out: &mut String, engine: &Engine) {
    let counters = engine.server.counters();
    let _ = writeln!(
        out,
        "{} names searched, {} found; {} requests, {} updates, {} replaced, {} errors, {} connections refused",
        engine.searches.asked,
        engine.searches.found,
        counters.requests,
        counters.updates,
        counters.replaced + engine.store.replaced(),
        counters.errors,
        engine.net.refused
    );
}
