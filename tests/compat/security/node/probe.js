// Logs in with the given settings and sends one message. Prints ok, refused (log-in failed) or denied (no permission).
//
//   node probe.js '{"client": "kafkajs", "address": ..., "topic": ..., "mechanism": ..., ...}'

import { readFileSync } from 'node:fs'

const told = JSON.parse(process.argv[2])
const read = (path) => path && readFileSync(path)

function tls() {
  if (!told.tls) return undefined
  return { ca: [read(told.ca)], cert: read(told.cert), key: read(told.key), servername: 'localhost' }
}

async function kafkajs() {
  const { Kafka, logLevel } = await import('kafkajs')
  const sasl = () => {
    switch (told.mechanism) {
      case 'certificate':
        return undefined
      case 'OAUTHBEARER':
        return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: told.token }) }
      default:
        return { mechanism: told.mechanism.toLowerCase(), username: told.user, password: told.password }
    }
  }
  const kafka = new Kafka({
    clientId: 'probe', brokers: [told.address], ssl: tls(), sasl: sasl(), logLevel: logLevel.NOTHING,
    retry: { retries: 0 }, connectionTimeout: 10000,
  })
  const producer = kafka.producer({ retry: { retries: 0 } })
  try {
    await producer.connect()
    await producer.send({ topic: told.topic, messages: [{ value: 'x' }] })
    return 'ok'
  } catch (error) {
    const all = [error, error.cause, error.originalError].filter(Boolean)
    if (all.some((it) => it.name === 'KafkaJSSASLAuthenticationError')) return 'refused'
    if (all.some((it) => it.type === 'TOPIC_AUTHORIZATION_FAILED')) return 'denied'
    // It treats the response to a rejected token as a log-in, and is disconnected at its next request.
    if (told.mechanism === 'OAUTHBEARER' && /Closed connection/.test(error.message)) return 'refused'
    // TLS rejects a certificate, and clients notice when they read.
    if (told.mechanism === 'certificate' && /alert|ECONNRESET|disconnected|closed/i.test(error.message)) return 'refused'
    throw error
  } finally {
    await producer.disconnect().catch(() => {})
  }
}

async function amqplib() {
  const amqp = await import('amqplib')
  const connect = amqp.connect ?? amqp.default.connect
  const [hostname, port] = told.address.split(':')
  const external = { mechanism: 'EXTERNAL', response: () => Buffer.from('') }
  const where = {
    protocol: told.tls ? 'amqps' : 'amqp', hostname, port: Number(port), vhost: '/',
    username: told.user, password: told.mechanism === 'token' ? told.token : told.password,
  }
  let connection
  try {
    connection = await connect(where, { ...tls(), ...(told.mechanism === 'EXTERNAL' && { credentials: external }) })
  } catch (error) {
    if (/403|ACCESS[-_]REFUSED|alert|ECONNRESET|closed/i.test(error.message)) return 'refused'
    throw error
  }
  connection.on('error', () => {})
  const channel = await connection.createConfirmChannel()
  const failed = new Promise((resolve) => channel.on('error', resolve))
  channel.publish('', told.topic, Buffer.from('x'))
  const outcome = await Promise.race([channel.waitForConfirms().then(() => 'ok', (error) => error), failed])
  await connection.close().catch(() => {})
  if (outcome === 'ok') return 'ok'
  const error = outcome.code ? outcome : await Promise.race([failed, outcome])
  if (error.code === 403 || /403|ACCESS[-_]REFUSED/.test(error.message)) return 'denied'
  throw error
}

try {
  console.log(await { kafkajs, amqplib }[told.client]())
  process.exit(0)
} catch (error) {
  console.log(`${error.name}: ${error.message}`)
  process.exit(1)
}
