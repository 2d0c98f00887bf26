// Runs the scenarios whose name contains any of the arguments, or all of them.

import './exchanges.js'
import './publishing.js'
import './consuming.js'
import './queues.js'
import { run } from './harness.js'

const failed = await run(process.argv.slice(2))
// A hung scenario leaves its sockets behind; leave without waiting for them.
process.exit(failed ? 1 : 0)
