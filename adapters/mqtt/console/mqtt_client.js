// A small MQTT client over WebSocket: MQTT 5.0 and 3.1.1, QoS 0 and 1, one clean session.
// It never connects again by itself: what has no acknowledgement when a connection ends has failed.

export const PACKET_BYTES_MAX = 1048576; // of one packet, both ways; CONNECT of 5.0 says so
const RECEIVE_MAX = 64;
const PENDING_MAX = 100; // SUBSCRIBE, UNSUBSCRIBE and PUBLISH without an acknowledgement
const KEEP_ALIVE_S = 150; // browsers run timers of a hidden page once a minute
const PING_MS = 30000;
const CONNECT_MS = 15000;

const CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBACK = 9, UNSUBACK = 11, PINGRESP = 13, DISCONNECT = 14;
const BYTE = 1, TWO = 2, FOUR = 3, VARINT = 4, TEXT = 5, BINARY = 6, PAIR = 7;
const PROPERTIES = {
  0x01: BYTE, 0x02: FOUR, 0x03: TEXT, 0x08: TEXT, 0x09: BINARY, 0x0b: VARINT, 0x11: FOUR, 0x12: TEXT, 0x13: TWO,
  0x15: TEXT, 0x16: BINARY, 0x17: BYTE, 0x18: FOUR, 0x19: BYTE, 0x1a: TEXT, 0x1c: TEXT, 0x1f: TEXT, 0x21: TWO,
  0x22: TWO, 0x23: TWO, 0x24: BYTE, 0x25: BYTE, 0x26: PAIR, 0x27: FOUR, 0x28: BYTE, 0x29: BYTE, 0x2a: BYTE,
};
const REASON_STRING = 0x1f, ASSIGNED_CLIENT_ID = 0x12, PACKET_SIZE_MAX = 0x27;
const RETURN_CODES = ["", "Unacceptable protocol version", "Identifier rejected", "Server unavailable", "Bad user name or password", "Not authorized"];
const REASONS = {
  0x80: "Unspecified error", 0x81: "Malformed packet", 0x82: "Protocol error", 0x83: "Implementation specific error",
  0x84: "Unsupported protocol version", 0x85: "Client identifier not valid", 0x86: "Bad user name or password",
  0x87: "Not authorized", 0x88: "Server unavailable", 0x89: "Server busy", 0x8a: "Banned", 0x8b: "Server shutting down",
  0x8c: "Bad authentication method", 0x8d: "Keep alive timeout", 0x8e: "Session taken over", 0x8f: "Topic filter invalid",
  0x90: "Topic name invalid", 0x91: "Packet identifier in use", 0x93: "Receive maximum exceeded", 0x95: "Packet too large",
  0x96: "Message rate too high", 0x97: "Quota exceeded", 0x98: "Administrative action", 0x99: "Payload format invalid",
  0x9a: "Retain not supported", 0x9b: "QoS not supported", 0x9c: "Use another server", 0x9d: "Server moved",
  0x9e: "Shared subscriptions not supported", 0x9f: "Connection rate exceeded", 0xa2: "Wildcard subscriptions not supported",
};

const encoder = new TextEncoder(), decoder = new TextDecoder();
const wordsOf = (code) => REASONS[code] ?? `Reason code 0x${code.toString(16)}`;
const two = (value) => [value >> 8, value & 255];

function field(value) {
  const data = encoder.encode(value);
  if (data.length > 65535) throw new Error("longer than 65,535 bytes, which MQTT cannot carry");
  return Uint8Array.of(...two(data.length), ...data);
}

function packet(first, ...parts) {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  if (size > PACKET_BYTES_MAX - 5) throw new Error(`larger than ${PACKET_BYTES_MAX} bytes, this page's bound`);
  const head = [first];
  let left = size;
  do { head.push((left & 127) | (left > 127 ? 128 : 0)); left >>= 7; } while (left);
  const whole = new Uint8Array(head.length + size);
  whole.set(head);
  let at = head.length;
  for (const part of parts) { whole.set(part, at); at += part.length; }
  return whole;
}

/** Reader of one packet's body; throws a RangeError behind its end. */
class Body {
  constructor(data) { this.data = data; this.at = 0; }
  get left() { return this.data.length - this.at; }
  take(count) {
    if (count > this.left) throw new RangeError("a packet ends too early");
    this.at += count;
    return this.data.subarray(this.at - count, this.at);
  }
  number(count) { return this.take(count).reduce((sum, one) => sum * 256 + one, 0); }
  binary() { return this.take(this.number(2)); }
  text() { return decoder.decode(this.binary()); }
  varint() {
    for (let value = 0, shift = 1, count = 0; count < 4; count += 1, shift *= 128) {
      const one = this.number(1);
      value += (one & 127) * shift;
      if (one < 128) return value;
    }
    throw new RangeError("a length of more than four bytes");
  }
  properties() {
    const found = {}, inner = new Body(this.take(this.varint()));
    while (inner.left) {
      const id = inner.varint();
      if (!PROPERTIES[id]) throw new RangeError(`an unknown property ${id}`);
      found[id] = {
        [BYTE]: () => inner.number(1), [TWO]: () => inner.number(2), [FOUR]: () => inner.number(4), [VARINT]: () => inner.varint(),
        [TEXT]: () => inner.text(), [BINARY]: () => inner.binary(), [PAIR]: () => [inner.text(), inner.text()],
      }[PROPERTIES[id]]();
    }
    return found;
  }
}

/**
 * A connection. `onMessage({topic, payload, qos, retained, dup})`; `onClosed(why)` once, also where
 * it never opened. `version` is 5 or 4 (3.1.1).
 */
export class MqttClient {
  constructor({ url, version, clientId, user, password, onMessage, onClosed }) {
    Object.assign(this, { version, onMessage, onClosed });
    this.pending = new Map();
    this.unread = new Uint8Array();
    this.lastId = 0;
    this.sentMax = PACKET_BYTES_MAX;
    this.isOpen = false;
    this.wasAccepted = false; // whether the listener took the WebSocket
    this.connected = new Promise((resolve, reject) => { this.connack = { resolve, reject }; });
    this.connected.catch(() => {});
    const greeting = this.connectPacket(clientId, user, password);
    this.socket = new WebSocket(url, ["mqtt"]);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => { this.wasAccepted = true; this.socket.send(greeting); };
    this.socket.onmessage = ({ data }) => { try { this.read(new Uint8Array(data)); } catch (error) { this.end(`The node sent ${error.message}.`); } };
    this.socket.onclose = () => this.end(this.wasAccepted ? "The node closed the connection." : "The listener did not take the connection.");
    this.limit = setTimeout(() => this.end("No answer to CONNECT."), CONNECT_MS);
  }

  connectPacket(clientId, user, password) {
    if (this.version === 4 && password && !user) throw new Error("MQTT 3.1.1 knows no password without a user");
    const flags = 2 | (user ? 128 : 0) | (password ? 64 : 0);
    const properties = this.version === 5 ? [8, 0x21, ...two(RECEIVE_MAX), PACKET_SIZE_MAX, 0, 16, 0, 0] : [];
    const login = [...(user ? [field(user)] : []), ...(password ? [field(password)] : [])];
    return packet(0x10, field("MQTT"), [this.version, flags, ...two(KEEP_ALIVE_S)], properties, field(clientId), ...login);
  }

  /** Resolves to the granted QoS. */
  async subscribe(filter, qos) {
    const codes = await this.asked(0x82, (id) => [id, this.none(), field(filter), [qos]]);
    if (codes[0] >= 0x80) throw new Error(this.version === 5 ? wordsOf(codes[0]) : "The node refused the subscription");
    return codes[0];
  }

  async unsubscribe(filter) {
    const codes = await this.asked(0xa2, (id) => [id, this.none(), field(filter)]);
    if (codes[0] >= 0x80) throw new Error(wordsOf(codes[0]));
  }

  /** Resolves when the message is sent (QoS 0) or acknowledged (QoS 1). */
  async publish(topic, payload, { qos, retain }) {
    const first = 0x30 | (qos << 1) | (retain ? 1 : 0);
    if (qos === 0) { this.send(packet(first, field(topic), this.none(), payload)); return; }
    const code = await this.asked(first, (id) => [field(topic), id, this.none(), payload]);
    if (code >= 0x80) throw new Error(wordsOf(code));
  }

  disconnect() {
    if (this.isOpen) this.socket.send(packet(0xe0));
    this.end("Disconnected.");
  }

  none() { return this.version === 5 ? [0] : []; }

  send(data) {
    if (!this.isOpen) throw new Error("Not connected");
    if (data.length > this.sentMax) throw new Error(`larger than ${this.sentMax} bytes, the most that the node takes`);
    this.socket.send(data);
  }

  asked(first, parts) {
    if (this.pending.size >= PENDING_MAX) throw new Error(`${PENDING_MAX} packets wait for the node; try again`);
    do { this.lastId = this.lastId % 65535 + 1; } while (this.pending.has(this.lastId));
    const id = this.lastId;
    this.send(packet(first, ...parts(two(id))));
    return new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }));
  }

  read(data) {
    const whole = new Uint8Array(this.unread.length + data.length);
    whole.set(this.unread);
    whole.set(data, this.unread.length);
    let at = 0;
    while (this.onClosed) {
      const frame = new Body(whole.subarray(at + 1));
      let size = 0;
      try { size = frame.varint(); } catch (error) {
        if (frame.left) throw error;
        break; // The length is not there yet.
      }
      if (size > PACKET_BYTES_MAX) throw new RangeError(`a packet of ${size} bytes; this page takes ${PACKET_BYTES_MAX}`);
      if (size > frame.left) break;
      this.take(whole[at], new Body(frame.take(size)));
      at += 1 + frame.at;
    }
    this.unread = whole.slice(at);
  }

  take(first, body) {
    const kind = first >> 4, isFive = this.version === 5;
    if (kind === CONNACK) this.takeConnack(body);
    else if (kind === PUBLISH) this.takePublish(first & 15, body);
    else if (kind === PUBACK) this.settle(body.number(2), body.left ? body.number(1) : 0);
    else if (kind === SUBACK || kind === UNSUBACK) {
      const id = body.number(2);
      if (isFive) body.properties();
      this.settle(id, [...body.take(body.left), 0]);
    } else if (kind === PINGRESP) this.pinged = false;
    else if (kind === DISCONNECT) {
      const code = body.left ? body.number(1) : 0;
      const words = body.left ? body.properties()[REASON_STRING] : null;
      this.end(`The node disconnected: ${code ? wordsOf(code) : "normally"}${words ? `, ${words}` : ""}.`);
    }
  }

  takeConnack(body) {
    body.take(1);
    const code = body.number(1), properties = this.version === 5 && body.left ? body.properties() : {};
    if (code) {
      const words = this.version === 5 ? wordsOf(code) : RETURN_CODES[code] ?? `Return code ${code}`;
      this.end(`The node refused CONNECT: ${words}${properties[REASON_STRING] ? `, ${properties[REASON_STRING]}` : ""}.`);
      return;
    }
    clearTimeout(this.limit);
    this.sentMax = Math.min(PACKET_BYTES_MAX, properties[PACKET_SIZE_MAX] ?? PACKET_BYTES_MAX);
    this.isOpen = true;
    this.timer = setInterval(() => this.ping(), PING_MS);
    this.connack.resolve(properties[ASSIGNED_CLIENT_ID] ?? null);
  }

  takePublish(flags, body) {
    const qos = (flags >> 1) & 3, topic = body.text(), id = qos ? body.number(2) : 0;
    if (this.version === 5) body.properties();
    this.onMessage({ topic, payload: body.take(body.left), qos, retained: Boolean(flags & 1), dup: Boolean(flags & 8) });
    if (qos === 1) this.socket.send(packet(0x40, two(id)));
  }

  settle(id, answer) {
    this.pending.get(id)?.resolve(answer);
    this.pending.delete(id);
  }

  ping() {
    if (this.pinged) { this.end("No answer to PINGREQ."); return; }
    this.pinged = true;
    this.socket.send(packet(0xc0));
  }

  end(why) {
    if (!this.onClosed) return;
    const told = this.onClosed;
    this.onClosed = null;
    this.isOpen = false;
    clearTimeout(this.limit);
    clearInterval(this.timer);
    this.socket.close();
    this.connack.reject(new Error(why));
    for (const one of this.pending.values()) one.reject(new Error(`${why} It had no acknowledgement.`));
    this.pending.clear();
    told(why);
  }
}
