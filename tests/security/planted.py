"""Planted secrets, all of them invented: what `export --redact` finds of them is measured, and said in the docs.

Run as a program it prints the table of docs/how-to/retention-and-secrets.md. No secret stands whole in this file, so
that scanners of repositories have nothing to find.
"""

import base64
import json
import random
import string
from typing import NamedTuple
from urllib.parse import quote

from mala_context.archive.redact import Redactor
from mala_context.transcripts.rows import rows

LETTERS = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
LOWER = string.ascii_lowercase + string.digits


class Planted(NamedTuple):
    """A secret in a text."""

    kind: str
    secret: str
    text: str


def _of(letters: str, length: int, seed: str) -> str:
    return "".join(random.Random(seed).choices(letters, k=length))


def _uuid(seed: str) -> str:
    return "-".join(_of(HEX, length, f"{seed}{length}{place}") for place, length in enumerate((8, 4, 4, 4, 12)))


def _pem(kind: str) -> str:
    body = "\n".join(_of(LETTERS + "+/", 64, f"{kind}{line}") for line in range(6))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


def _jwt() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    signature = _of(LETTERS + "-_", 43, "jwt")
    return ".".join((part({"alg": "HS256", "typ": "JWT"}), part({"sub": "1234567890", "name": "dev"}), signature))


SHAPES = {
    "AWS access key": "AKIA" + _of(UPPER, 16, "aws"),
    "GitHub token": "ghp" + "_" + _of(LETTERS, 36, "gh"),
    "GitHub fine-grained token": "github" + "_pat_" + _of(LETTERS, 22, "ghf") + "_" + _of(LETTERS, 59, "ghf2"),
    "GitLab token": "glpat" + "-" + _of(LETTERS, 20, "gl"),
    "Slack bot token": "xoxb" + "-123456789012-1234567890123-" + _of(LETTERS, 24, "slack"),
    "Slack webhook": "https://hooks.slack.com/services/T"
    + "/".join((_of(UPPER, 8, "t"), "B" + _of(UPPER, 8, "b"), _of(LETTERS, 24, "w"))),
    "Stripe key": "sk" + "_live_" + _of(LETTERS, 24, "stripe"),
    "OpenAI key": "sk" + "-" + _of(LETTERS, 20, "oa") + "T3Blbk" + "FJ" + _of(LETTERS, 20, "oa2"),
    "OpenAI project key": "sk" + "-proj-" + _of(LETTERS + "-_", 120, "oap"),
    "Anthropic key": "sk" + "-ant-api03-" + _of(LETTERS + "-_", 93, "ant") + "AA",
    "Google API key": "AIza" + _of(LETTERS, 35, "google"),
    "Google OAuth secret": "GOCSPX" + "-" + _of(LETTERS, 28, "goauth"),
    "npm token": "npm" + "_" + _of(LETTERS, 36, "npm"),
    "PyPI token": "pypi" + "-AgEIcHlwaS5vcmc" + _of(LETTERS, 80, "pypi"),
    "Hugging Face token": "hf" + "_" + _of(LETTERS, 34, "hf"),
    "DigitalOcean token": "dop" + "_v1_" + _of(HEX, 64, "do"),
    "SendGrid key": "SG" + "." + _of(LETTERS, 22, "sg") + "." + _of(LETTERS, 43, "sg2"),
    "Twilio key": "SK" + _of(HEX, 32, "twilio"),
    "Telegram bot token": "1234567890:AA" + _of(LETTERS, 33, "telegram"),
    "Discord bot token": "M" + _of(LETTERS, 23, "dc") + "." + _of(LETTERS, 6, "dc2") + "." + _of(LETTERS, 27, "dc3"),
    "Azure storage key": "AccountKey=" + _of(LETTERS + "+/", 86, "azure") + "==",
    "JSON web token": _jwt(),
    "age secret key": "AGE-SECRET" + "-KEY-1" + _of(UPPER, 58, "age"),
}
"""Keys of well-known kinds, each in a sentence without a telling word."""

NEWER = {
    "xAI key": "xai" + "-" + _of(LETTERS, 80, "xai"),
    "Groq key": "gsk" + "_" + _of(LETTERS, 52, "groq"),
    "OpenRouter key": "sk" + "-or-v1-" + _of(HEX, 64, "openrouter"),
    "Replicate token": "r8" + "_" + _of(LETTERS, 37, "replicate"),
    "Perplexity key": "pplx" + "-" + _of(LETTERS, 48, "pplx"),
    "NVIDIA key": "nvapi" + "-" + _of(LETTERS + "-_", 64, "nvidia"),
    "Pinecone key": "pcsk" + "_" + _of(LETTERS, 6, "pc") + "_" + _of(LETTERS, 63, "pc2"),
    "Tavily key": "tvly" + "-dev-" + _of(LETTERS, 32, "tavily"),
    "Claude OAuth token": "sk" + "-ant-oat01-" + _of(LETTERS + "-_", 93, "oat") + "AA",
    "GitLab routable token": "glpat" + "-" + _of(LETTERS, 27, "glr") + ".01." + _of(HEX, 9, "glr2"),
    "Supabase secret key": "sb" + "_secret_" + _of(LETTERS, 31, "supabase"),
    "Docker Hub token": "dckr" + "_pat_" + _of(LETTERS + "-_", 27, "docker"),
    "Linear key": "lin" + "_api_" + _of(LETTERS, 40, "linear"),
    "Notion token": "ntn" + "_" + _of(LETTERS, 46, "notion"),
    "Figma token": "figd" + "_" + _of(LETTERS + "-_", 40, "figma"),
    "Shopify token": "shpat" + "_" + _of(HEX, 32, "shopify"),
    "Stripe webhook secret": "whsec" + "_" + _of(LETTERS, 32, "whsec"),
    "Databricks token": "dapi" + _of(HEX, 32, "databricks"),
    "HashiCorp Vault token": "hvs" + "." + _of(LETTERS + "-_", 95, "vault"),
    "Terraform token": _of(LETTERS, 14, "tf") + ".atlasv1." + _of(LETTERS, 67, "tf2"),
    "Atlassian token": "ATATT3x" + _of(LETTERS + "-_", 180, "atlassian") + "=" + _of(UPPER, 8, "atlassian2"),
    "Grafana token": "glsa" + "_" + _of(LETTERS, 32, "grafana") + "_" + _of(HEX, 8, "grafana2"),
    "Doppler token": "dp" + ".pt." + _of(LETTERS, 43, "doppler"),
    "Postman key": "PMAK" + "-" + _of(HEX, 24, "postman") + "-" + _of(HEX, 34, "postman2"),
    "Tailscale key": "tskey" + "-auth-" + _of(LETTERS, 17, "ts") + "-" + _of(LETTERS, 32, "ts2"),
    "Google access token": "ya29" + "." + _of(LETTERS + "-_", 160, "ya29"),
}
"""Keys in the shapes of 2026. The rules were tuned on them; `HELD_OUT` says what that is worth."""

HELD = "keys in 52 further shapes of 2026"
HELD_OUT = {
    "Together key": "tgp" + "_v1_" + _of(LETTERS + "-_", 43, "together"),
    "Fireworks key": "fw" + "_" + _of(LETTERS, 24, "fireworks"),
    "Cerebras key": "csk" + "-" + _of(LOWER, 48, "cerebras"),
    "DeepSeek key": "sk" + "-" + _of(HEX, 32, "deepseek"),
    "ElevenLabs key": "sk" + "_" + _of(HEX, 48, "elevenlabs"),
    "Mistral key": _of(LETTERS, 32, "mistral"),
    "Cohere key": _of(LETTERS, 40, "cohere"),
    "Brave Search key": "BSA" + _of(LETTERS + "-_", 28, "brave"),
    "Firecrawl key": "fc" + "-" + _of(HEX, 32, "firecrawl"),
    "Exa key": _uuid("exa"),
    "Langfuse key": "sk" + "-lf-" + _uuid("langfuse"),
    "LangSmith key": "lsv2" + "_pt_" + _of(HEX, 32, "langsmith") + "_" + _of(HEX, 10, "langsmith2"),
    "Weights & Biases key": _of(HEX, 40, "wandb"),
    "Bedrock key": "ABSK" + "QmVkcm9ja0FQSUtleS" + _of(LETTERS + "+/", 110, "bedrock"),
    "AWS temporary key": "ASIA" + _of(UPPER, 16, "asia"),
    "AWS session token": "IQoJb3JpZ2luX2Vj" + _of(LETTERS + "+/", 400, "sts"),
    "GitHub server token": "ghs" + "_" + _of(LETTERS, 36, "ghs"),
    "Azure client secret": _of(LETTERS, 3, "az") + "8Q" + "~" + _of(LETTERS + "_.~-", 34, "az2"),
    "Azure DevOps token": _of(LETTERS, 76, "azdo") + "AZDO" + _of(LETTERS, 4, "azdo2"),
    "Cloudflare token": _of(LETTERS + "-_", 40, "cloudflare"),
    "Vercel key": "vck" + "_" + _of(LETTERS, 60, "vercel"),
    "Netlify token": "nfp" + "_" + _of(LETTERS, 40, "netlify"),
    "Fly.io token": "fm2" + "_" + _of(LETTERS + "+/", 200, "fly"),
    "Render key": "rnd" + "_" + _of(LETTERS, 28, "render"),
    "Neon key": "napi" + "_" + _of(LOWER, 64, "neon"),
    "PlanetScale password": "pscale" + "_pw_" + _of(LETTERS + "-_", 43, "pscale"),
    "Sentry token": "sntryu" + "_" + _of(HEX, 64, "sentry"),
    "PostHog key": "phx" + "_" + _of(LETTERS, 43, "posthog"),
    "Datadog key": _of(HEX, 32, "datadog"),
    "New Relic key": "NRAK" + "-" + _of(UPPER, 27, "newrelic"),
    "Airtable token": "pat" + _of(LETTERS, 14, "airtable") + "." + _of(HEX, 64, "airtable2"),
    "Asana token": "2/"
    + _of("0123456789", 16, "asana")
    + "/"
    + _of("0123456789", 16, "as2")
    + ":"
    + _of(HEX, 32, "as3"),
    "ClickUp token": "pk" + "_" + _of("0123456789", 8, "clickup") + "_" + _of(UPPER, 32, "clickup2"),
    "Dropbox token": "sl" + ".u." + _of(LETTERS + "-_", 140, "dropbox"),
    "Square token": "EAAA" + _of(LETTERS + "-_", 60, "square"),
    "Mailgun key": "key" + "-" + _of(HEX, 32, "mailgun"),
    "Mailchimp key": _of(HEX, 32, "mailchimp") + "-us21",
    "Resend key": "re" + "_" + _of(LETTERS, 8, "resend") + "_" + _of(LETTERS, 24, "resend2"),
    "Brevo key": "xkeysib" + "-" + _of(HEX, 64, "brevo") + "-" + _of(LETTERS, 16, "brevo2"),
    "RubyGems key": "rubygems" + "_" + _of(HEX, 48, "rubygems"),
    "crates.io token": "cio" + _of(LETTERS, 32, "crates"),
    "NuGet key": "oy2" + _of(LOWER, 43, "nuget"),
    "Buildkite token": "bkua" + "_" + _of(HEX, 40, "buildkite"),
    "CircleCI token": "CCIPAT" + "_" + _of(LETTERS, 22, "circle") + "_" + _of(HEX, 40, "circle2"),
    "Pulumi token": "pul" + "-" + _of(HEX, 40, "pulumi"),
    "1Password service account": "ops" + "_eyJ" + _of(LETTERS, 250, "op"),
    "Okta token": "00" + _of(LETTERS + "-_", 40, "okta"),
    "Heroku key": "HRKU" + "-AA" + _of(LETTERS + "-_", 58, "heroku"),
    "Sonar token": "sqp" + "_" + _of(HEX, 40, "sonar"),
    "Mapbox token": "sk" + ".eyJ1Ijoi" + _of(LETTERS, 60, "mapbox") + "." + _of(LETTERS + "-_", 22, "mapbox2"),
    "Slack app token": "xapp" + "-1-A" + _of(UPPER, 10, "xapp") + "-1234567890123-" + _of(HEX, 64, "xapp2"),
    "Discord webhook": "https://discord.com/api/webhooks/123456789012345678/" + _of(LETTERS + "-_", 68, "dwh"),
}
"""Keys in further shapes of 2026, written down before the rules for `NEWER` were made. Make no rule for what is missed
here: the rate would then say nothing of the shapes of next year."""

PASSWORD = "Tr0ub4dor" + "-Horse-7"
TOKEN = _of(LETTERS, 32, "token")

PLACES = {
    "password in a URL": (PASSWORD, f"git clone https://dev:{PASSWORD}@git.example.org/x.git"),
    "password in a database URL": (PASSWORD, f"postgresql://app:{PASSWORD}@db.example.org:5432/app"),
    "bearer token in a header": (TOKEN, f"curl -H 'Authorization: Bearer {TOKEN}' https://example.org"),
    "basic authentication in a header": (
        base64.b64encode(f"dev:{PASSWORD}".encode()).decode(),
        f"Authorization: Basic {base64.b64encode(f'dev:{PASSWORD}'.encode()).decode()}",
    ),
    "value in a .env file": (TOKEN, f"API_KEY={TOKEN}"),
    "value in YAML": (PASSWORD, f"db:\n  password: {PASSWORD}\n"),
    "value in JSON that a tool printed": (PASSWORD, json.dumps({"db": {"password": PASSWORD}})),
    "value in JSON within JSON": (PASSWORD, json.dumps(json.dumps({"password": PASSWORD}))),
    "value in Python source": (PASSWORD, f"password = '{PASSWORD}'"),
    "option of a command": (PASSWORD, f"mysql -u root --password={PASSWORD} app"),
    "option and value apart": (PASSWORD, f"deploy --password {PASSWORD} now"),
    "line of .netrc": (PASSWORD, f"machine example.org login dev password {PASSWORD}"),
    "line of .npmrc": (TOKEN, f"//registry.example.org/:_authToken={TOKEN}"),
    "parameter of a URL": (TOKEN, f"GET https://example.org/v1?access_token={TOKEN}&x=1"),
    "cookie": (TOKEN, f"Cookie: sessionid={TOKEN}"),
    "password in a URL without a user": (PASSWORD, f"redis://:{PASSWORD}@cache.example.org:6379/0"),
    "lower-case bearer": (TOKEN, f"authorization: bearer {TOKEN}"),
    "user and password of curl": (PASSWORD, f"curl -s -u dev:{PASSWORD} https://example.org"),
    "YAML as the Read tool shows it": (PASSWORD, f"     4→db:\n     5→  password: {PASSWORD}\n     6→  port: 5432"),
    "YAML in numbered lines with tabs": (PASSWORD, f"4\tdb:\n5\t  password: {PASSWORD}\n"),
}
"""Values that only what stands beside them tells, and where."""

PEM = {
    "RSA private key": _pem("RSA "),
    "OpenSSH private key": _pem("OPENSSH "),
    "PKCS #8 private key": _pem(""),
    "encrypted private key": _pem("ENCRYPTED "),
}

_GITHUB = SHAPES["GitHub token"]
HIDDEN = {
    "bare password in a sentence": (PASSWORD, f"log in as dev, it is {PASSWORD}"),
    "random string in a log": (TOKEN, f"2026-11-01 handing out {TOKEN} to worker 3"),
    "key split over two lines": (_GITHUB[20:], f"the key is {_GITHUB[:20]}\n{_GITHUB[20:]}"),
    "key in base64": (base64.b64encode(_GITHUB.encode()).decode(), base64.b64encode(_GITHUB.encode()).decode()),
    "password in a URL, URL-encoded": (PASSWORD, f"next={quote(f'https://dev:{PASSWORD}@example.org', '')}"),
    "key in hexadecimal": (_GITHUB.encode().hex(), _GITHUB.encode().hex()),
    "private key in base64": (
        base64.b64encode(PEM["RSA private key"].encode()).decode(),
        base64.b64encode(PEM["RSA private key"].encode()).decode(),
    ),
    "e-mail address": ("jane.doe@example.org", "written by jane.doe@example.org"),
}
"""What the documentation says is not found."""


def planted() -> list[tuple[str, Planted]]:
    """Every secret with the group that it belongs to."""
    found = [("keys of known shape", Planted(kind, key, f"then I saw {key} there")) for kind, key in SHAPES.items()]
    newer = "keys in the shapes of 2026"
    found += [(newer, Planted(kind, key, f"then I saw {key} there")) for kind, key in NEWER.items()]
    found += [(HELD, Planted(kind, key, f"then I saw {key} there")) for kind, key in HELD_OUT.items()]
    found += [("values that their place tells", Planted(kind, *value)) for kind, value in PLACES.items()]
    found += [("private keys", Planted(kind, pem.split("\n")[3], f"cat id\n{pem}\n")) for kind, pem in PEM.items()]
    found += [("said not to be found", Planted(kind, *value)) for kind, value in HIDDEN.items()]
    assert all(each.secret in each.text for _, each in found)
    return found


def as_message(text: str) -> dict[str, object]:
    """A row as a tool's result has it."""
    return {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": text}]}}


def survives(each: Planted, redactor: Redactor, *, ascii_only: bool = True) -> bool:
    """Whether a secret can be read in the masked copy of a row that holds it."""
    data = json.dumps(as_message(each.text), ensure_ascii=ascii_only).encode() + b"\n"
    (row,) = rows([data])
    masked = json.loads(redactor.row(row))["message"]["content"][0]["content"]
    return each.secret in masked


def measure() -> dict[str, dict[str, bool]]:
    """Group → kind → whether it was masked."""
    redactor = Redactor()
    found: dict[str, dict[str, bool]] = {}
    for group, each in planted():
        found.setdefault(group, {})[each.kind] = not survives(each, redactor)
    return found


def table() -> str:
    """The measurement as the table of the documentation."""
    lines = ["| planted | masked | missed |", "| -- | -- | -- |"]
    for group, kinds in measure().items():
        missed = ", ".join(kind for kind, masked in kinds.items() if not masked) or "none"
        lines.append(f"| {group} | {sum(kinds.values())} of {len(kinds)} | {missed} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
