// A long-lived process that runs the official Node.js client for RocketMQ 5 for a test.
//
// It speaks the protocol of the other drivers: each line on stdin is a command {"id": 1, "do": "producer.send", …}, each
// line on stdout an answer {"id": 1, "ok": …} or {"id": 1, "error": {"type", "code", "message"}}. Commands run side by
// side. What the client logs from a warning on goes to stderr. At the end of stdin the process exits without any good-bye.
'use strict';

const readline = require('node:readline');
const { format } = require('node:util');
const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const {
  FilterType, TransactionResolution,
} = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const { version } = require('rocketmq-client-nodejs/package.json');

const RESOLUTIONS = {
  commit: TransactionResolution.COMMIT,
  rollback: TransactionResolution.ROLLBACK,
  unknown: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
};

const producers = new Map();
const pushConsumers = new Map();
const simpleConsumers = new Map();

const tell = level => (...args) => process.stderr.write(`${new Date().toISOString()} ${level} ${format(...args)}\n`);
const logger = { debug() {}, info() {}, warn: tell('WARN'), error: tell('ERROR'), close() {} };

// After a loss the client opens its telemetry stream anew, and listens to its errors a moment later: one that comes at once,
// as from a server that is just stopping, is nobody's, and would end the process.
const UNAVAILABLE = 14;
process.on('uncaughtException', error => {
  logger.error('nobody hears of', error);
  if (error.code !== UNAVAILABLE) process.exit(1);
});

// What a client was handed, in order, for a test that waits for it.
class Deliveries {
  #messages = [];
  #waiting = new Set();

  add(message) {
    this.#messages.push(view(message));
    for (const look of this.#waiting) look();
  }

  // Resolves to those from a number on, once there are so many in all or the time is over.
  wait({ count, timeoutMs, from = 0 }) {
    return new Promise(resolve => {
      const finish = () => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve({ messages: this.#messages.slice(from) });
      };
      const look = () => this.#messages.length >= count && finish();
      const timer = setTimeout(finish, timeoutMs);
      this.#waiting.add(look);
      look();
    });
  }
}

function named(clients, kind, name) {
  const client = clients.get(name);
  if (!client) throw new Error(`${kind} ${name} is not running`);
  return client;
}

function options({ endpoints, tls, accessKey, secretKey, requestTimeoutMs }) {
  return {
    endpoints,
    namespace: '',
    logger,
    sslEnabled: tls === true,
    ...requestTimeoutMs && { requestTimeout: requestTimeoutMs },
    ...accessKey && { sessionCredentials: { accessKey, accessSecret: secretKey } },
  };
}

// An expression is null, one of tags, or {"sql"}.
function subscriptions(wanted) {
  return new Map(Object.entries(wanted).map(([ topic, expression ]) => [ topic, expression?.sql
    ? new FilterExpression(expression.sql, FilterType.SQL)
    : new FilterExpression(expression ?? '*', FilterType.TAG) ]));
}

function outgoing(topic, { body, tag, keys, properties, messageGroup, deliverAtMs, priority }) {
  return {
    topic,
    body: Buffer.from(body, 'base64'),
    tag,
    keys,
    messageGroup,
    priority,
    properties: new Map(Object.entries(properties ?? {})),
    deliveryTimestamp: deliverAtMs === undefined ? undefined : new Date(deliverAtMs),
  };
}

function receipt({ messageId, transactionId, offset, recallHandle }) {
  return { messageId, transactionId: transactionId || null, offset, recallHandle: recallHandle || null };
}

function view(message) {
  return {
    topic: message.topic,
    messageId: message.messageId,
    body: message.body.toString('base64'),
    tag: message.tag || null,
    keys: message.keys,
    properties: Object.fromEntries(message.properties),
    messageGroup: message.messageGroup || null,
    deliverAtMs: message.deliveryTimestamp?.getTime() ?? null,
    priority: message.priority || null,
    bornHost: message.bornHost,
    bornAtMs: message.bornTimestamp?.getTime() ?? 0,
    attempt: message.deliveryAttempt ?? 0,
    corrupted: message.corrupted === true,
    receivedAt: Date.now(),
  };
}

function failure(error) {
  const code = Number.isInteger(error?.code) ? error.code : null; // errors of Node.js itself have words for codes
  return { type: error?.constructor?.name ?? 'Error', code, message: String(error?.message ?? error) };
}

async function attempt(act) {
  try {
    return await act() ?? {};
  } catch (error) { // the test hears of whatever the client throws
    return { error: failure(error) };
  }
}

async function inTurn(items, act) {
  const results = [];
  for (const item of items) results.push(await attempt(() => act(item)));
  return { results };
}

// A message with the property "outcome" is sent in a transaction, which ends so.
async function sendOne(producer, message) {
  const outcome = message.properties.get('outcome');
  if (outcome === undefined) return receipt(await producer.send(message));
  const transaction = producer.beginTransaction();
  const sent = receipt(await producer.send(message, transaction));
  if (outcome === 'commit') await transaction.commit();
  if (outcome === 'rollback') await transaction.rollback();
  return sent;
}

// Refuses each message as often as the test wants, and takes its time for the first one of each.
function listener({ failures = 0, hangMs = 0 }, deliveries) {
  return {
    async consume(message) {
      deliveries.add(message);
      if (hangMs && message.deliveryAttempt === 1) await new Promise(resolve => setTimeout(resolve, hangMs));
      return message.deliveryAttempt <= failures ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
}

const commands = {
  async hello() {
    return { client: `node ${version}`, pid: process.pid };
  },

  async 'producer.start'({ name, topics, ...about }) {
    const asked = new Deliveries();
    const checker = {
      async check(message) {
        asked.add(message);
        return RESOLUTIONS[message.properties.get('checked') ?? 'unknown'];
      },
    };
    const producer = new Producer({ ...options(about), topics: topics ?? [], checker });
    await producer.startup();
    producers.set(name, { producer, asked });
    return { clientId: producer.clientId };
  },

  async 'producer.send'({ name, topic, mode, messages }) {
    const { producer } = named(producers, 'producer', name);
    const all = messages.map(fields => outgoing(topic, fields));
    if (mode !== 'async') return await inTurn(all, message => sendOne(producer, message));
    return { results: await Promise.all(all.map(message => attempt(() => sendOne(producer, message)))) };
  },

  async 'producer.checked'({ name, ...wanted }) {
    return await named(producers, 'producer', name).asked.wait(wanted);
  },

  async 'producer.recall'({ name, topic, handle }) {
    const { producer } = named(producers, 'producer', name);
    return await attempt(async () => ({ messageId: (await producer.recallMessage(topic, handle)).messageId }));
  },

  async 'producer.stop'({ name }) {
    const { producer } = named(producers, 'producer', name);
    producers.delete(name);
    await producer.shutdown();
  },

  async 'push.start'({ name, group, ...about }) {
    const deliveries = new Deliveries();
    const consumer = new PushConsumer({
      ...options(about),
      consumerGroup: group,
      subscriptions: subscriptions(about.subscriptions),
      messageListener: listener(about, deliveries),
    });
    await consumer.startup();
    pushConsumers.set(name, { consumer, deliveries });
    return { clientId: consumer.clientId };
  },

  async 'push.received'({ name, ...wanted }) {
    return await named(pushConsumers, 'push consumer', name).deliveries.wait(wanted);
  },

  async 'push.stop'({ name }) {
    await named(pushConsumers, 'push consumer', name).consumer.shutdown();
  },

  async 'simple.start'({ name, group, awaitMs = 5000, ...about }) {
    const consumer = new SimpleConsumer({
      ...options(about),
      consumerGroup: group,
      awaitDuration: awaitMs,
      subscriptions: subscriptions(about.subscriptions),
    });
    await consumer.startup();
    simpleConsumers.set(name, { consumer, messages: [] });
    return { clientId: consumer.clientId };
  },

  async 'simple.receive'({ name, count, invisibleMs }) {
    const { consumer, messages } = named(simpleConsumers, 'simple consumer', name);
    const received = await consumer.receive(count, invisibleMs);
    return { messages: received.map(message => ({ ...view(message), number: messages.push(message) - 1 })) };
  },

  async 'simple.ack'({ name, numbers }) {
    const { consumer, messages } = named(simpleConsumers, 'simple consumer', name);
    return await inTurn(numbers, async number => { await consumer.ack(messages[number]); });
  },

  async 'simple.change'({ name, numbers, invisibleMs }) {
    const { consumer, messages } = named(simpleConsumers, 'simple consumer', name);
    return await inTurn(numbers, async number => {
      await consumer.changeInvisibleDuration(messages[number], invisibleMs);
    });
  },

  async 'simple.stop'({ name }) {
    const { consumer } = named(simpleConsumers, 'simple consumer', name);
    simpleConsumers.delete(name);
    await consumer.shutdown();
  },
};

async function answer(line) {
  const { id, do: command, ...about } = JSON.parse(line);
  let answered;
  try {
    if (!(command in commands)) throw new Error(`unknown command ${command}`);
    answered = { id, ok: await commands[command](about) ?? {} };
  } catch (error) {
    answered = { id, error: failure(error) };
  }
  process.stdout.write(`${JSON.stringify(answered)}\n`);
}

readline.createInterface({ input: process.stdin }).on('line', answer).on('close', () => process.exit(0));
