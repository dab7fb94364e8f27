// Asks mala-context what shall take a conversation's place at a compaction. Any doubt leaves it to Claude Code.
import type { EngineInterface, Register, SessionAppendInput, SessionCompactInput, SessionMessage } from 'claude-code'

const SERVER = 'mala_context_reference'
const WAIT = 2500 // milliseconds; the side that answers gives up by itself after 2,000

type Answer = { rows?: (string | number)[] }

function row(message: SessionMessage) {
  const toolUses = message.toolUses.map(({ tool, input, text, isError }) => ({ tool, input, text, isError }))
  return { role: message.role, text: message.text, toolUses, results: message.toolResults?.length ?? 0, handle: message.handle }
}

// Undefined before Claude Code 2.1.326, which refuses a mod's call of our tool too; a command then looks for the path.
async function transcript($: EngineInterface): Promise<string | undefined> {
  try {
    return (await $.session.info()).transcriptPath
  } catch {
    return undefined
  }
}

async function ask($: EngineInterface, e: SessionCompactInput): Promise<Answer> {
  const request = {
    session: await $.session.id(),
    transcript: await transcript($),
    cwd: await $.session.cwd(),
    trigger: e.trigger,
    instructions: e.instructions ?? '',
    agent: e.agentId ?? '',
    messages: e.messages.map(row),
  }
  if ((await $.env.get('MALA_CONTEXT_REFERENCE')) === 'sdk') {
    if (request.transcript === undefined) return {}
    const { content } = await $.mcp.call(SERVER, 'compact', request)
    return JSON.parse((content[0] as { text: string }).text)
  }
  const env = { CLAUDE_PLUGIN_ROOT: $.plugin.root, CLAUDE_PROJECT_DIR: await $.session.root() }
  const argv = ['python3', '-I', '-S', `${$.plugin.root}/hooks/hook.py`, 'compact']
  const { stdout } = await $.process.run(argv, { stdin: JSON.stringify(request), env, timeoutMs: WAIT })
  return JSON.parse(stdout)
}

// A failed tool's result, which no hook can replace, is cut like any other.
async function capped($: EngineInterface, e: SessionAppendInput) {
  const texts = e.message.content.map(block =>
    block.type === 'tool_result' && block.is_error === true && typeof block.content === 'string' ? block.content : '')
  const request = { session: await $.session.id(), agent: e.agentId ?? '', texts }
  const { content } = await $.mcp.call(SERVER, 'cap', request)
  const seen = JSON.parse((content[0] as { text: string }).text).texts as (string | null)[]
  return e.message.content.map((block, place) => (typeof seen[place] === 'string' ? { ...block, content: seen[place] } : block))
}

function built(e: SessionCompactInput, rows: (string | number)[]): SessionMessage[] {
  return rows.map(each => {
    const kept = typeof each === 'number' ? e.messages[each] : { role: 'user' as const, text: each, toolUses: [] }
    if (kept === undefined || (typeof each === 'string' && each === '')) throw new Error('a row that is none')
    return kept
  })
}

export const register: Register = on => {
  on('session.start', async ($, e, next) => {
    if ((await $.env.get('MALA_CONTEXT_REFERENCE')) === 'sdk' && (await transcript($)) !== undefined) $.ui.log('ready')
    return next(e)
  })
  on('session.append', { door: 'tool-result' }, async ($, e, next) => {
    const failed = e.message.content.some(block => block.type === 'tool_result' && block.is_error === true)
    if (!failed || (await $.env.get('MALA_CONTEXT_CAP')) !== 'sdk') return next(e)
    const late = $.clock.sleep(WAIT).then(() => e.message.content)
    const content = await Promise.race([capped($, e), late]).catch(() => e.message.content)
    return next({ ...e, message: { ...e.message, content } })
  })
  on('session.compact', async ($, e, next) => {
    if (e.trigger === 'precompute') {
      const ours = (await $.env.get('MALA_CONTEXT_REFERENCE')) ?? (await $.env.get('MALA_COMPACTION'))
      return ours === 'sdk' || ours === 'reference' ? { skip: 'mala-context compacts by reference' } : next(e)
    }
    const late = $.clock.sleep(WAIT).then((): Answer => ({}))
    const { rows } = await Promise.race([ask($, e), late]).catch((): Answer => ({}))
    if (!Array.isArray(rows) || rows.length === 0) return next(e)
    return { messages: built(e, rows) }
  })
}
