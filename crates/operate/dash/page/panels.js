// The panels in the order of the page. Each has a separate address. A panel is an object:
//   id, title    its name in the address, and its heading
//   group        optional: the heading in the navigation above it
//   topics       the topics of the server that it shows; `show(topic, data)` is called with each message, also while the panel is hidden,
//                and once more when the panel is opened
//   build(section, tahti)   makes its elements; `tahti` is what main.js exports
//   connected()  optional: called after each connection
//   stale(topics)  optional: called with the topics without new data; if absent, one stale topic of the panel marks its whole section as stale
//   open(thing)  optional: called if the address names an item of the panel
//   close()      optional: called if the address names the panel without an item
// Binary messages: `tahti.onBinary(kind, take)`; kinds are in src/protocol.rs.
import overview from "./panels/overview.js";
import processes from "./panels/processes.js";
import shield from "./panels/shield.js";
import latency from "./panels/latency.js";
import frames from "./panels/frames.js";
import alarms from "./panels/alarms.js";
import signals from "./panels/signals.js";
import settings from "./panels/settings.js";
import scope from "./panels/scope.js";
import messages from "./panels/messages.js";
import logs from "./panels/logs.js";

export default [overview, latency, shield, frames, processes, alarms, signals, scope, settings, messages, logs];
