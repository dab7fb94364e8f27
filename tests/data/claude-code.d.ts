// The part of Claude Code's interface for mods that register.ts uses, as measured on 2.1.294 to 2.1.332.
declare module 'claude-code' {
  export type ToolUse = { tool_use_id: string; tool: string; input: Record<string, unknown>; text?: string; isError?: boolean }
  export type SessionMessage = {
    role: 'user' | 'assistant'
    text: string
    toolUses: ToolUse[]
    toolResults?: { tool_use_id: string; text: string; isError: boolean }[]
    handle?: string
  }
  export type SessionCompactInput = {
    trigger: 'auto' | 'manual' | 'plugin' | 'precompute'
    instructions?: string
    agentId?: string
    messages: SessionMessage[]
  }
  export type SessionCompactResult = { messages: SessionMessage[] } | { skip: string }
  export type Block = { type: string; is_error?: boolean; content?: unknown }
  export type SessionAppendInput = { agentId?: string; message: { content: Block[] } }
  export type EngineInterface = {
    plugin: { name: string; root: string }
    session: {
      id(): Promise<string>
      info(): Promise<{ transcriptPath: string }>
      cwd(): Promise<string>
      root(): Promise<string>
    }
    env: { get(name: string): Promise<string | undefined> }
    mcp: { call(server: string, tool: string, request: object): Promise<{ content: unknown[] }> }
    process: {
      run(
        argv: readonly string[],
        init?: { cwd?: string; env?: Record<string, string>; stdin?: string; timeoutMs?: number },
      ): Promise<{ exitCode: number; stdout: string; stderr: string }>
    }
    clock: { sleep(milliseconds: number): Promise<void> }
    ui: { log(text: string): void }
  }
  type Hook<Input, Result> = ($: EngineInterface, e: Input, next: (e: Input) => Promise<Result>) => Promise<Result>
  export type On = {
    (event: 'session.start', hook: Hook<object, object>): void
    (event: 'session.append', matcher: { door: 'tool-result' }, hook: Hook<SessionAppendInput, object>): void
    (event: 'session.compact', hook: Hook<SessionCompactInput, SessionCompactResult>): void
  }
  export type Register = (on: On) => void
}
