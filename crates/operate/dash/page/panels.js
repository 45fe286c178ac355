// The panels in the page's order. A panel is an object:
//   id, title    its name in the address and for people
//   topics       what it wants to be told of; `show(topic, data)` is called with each
//   build(section, tahti)   makes its elements; `tahti` is what main.js exports
//   connected()  optional: there is a connection (again)
// Binary messages: `tahti.onBinary(kind, take)`; kinds are in src/protocol.rs.
import processes from "./panels/processes.js";
import shield from "./panels/shield.js";
import latency from "./panels/latency.js";
import frames from "./panels/frames.js";
import alarms from "./panels/alarms.js";
import signals from "./panels/signals.js";
import settings from "./panels/settings.js";
import scope from "./panels/scope.js";
import messages from "./panels/messages.js";

export default [processes, shield, latency, frames, alarms, signals, settings, scope, messages];
