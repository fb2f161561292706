"""Writes chat.json: conversations as Jinja renders them, set up as transformers does for chat templates."""

import json
from pathlib import Path

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "one line a message": """\
{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}
""",
    "turns that alternate": """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim + '\\n\\n' %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate user/assistant/user/assistant') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' + (system if loop.first else '') + message.content | trim + ' [/INST]' }}
    {%- else %}
        {{- ' ' ~ message.content | trim ~ ' ' ~ eos_token }}
    {%- endif %}
{%- endfor %}
""",
    "tools, macros and namespaces": """\
{%- macro field(name, value) %}{{ name }}: {{ value | tojson }};{% endmacro %}
{%- set ns = namespace(count=0) %}
{%- if tools %}
{{- '# Tools\\n' }}
{%- for tool in tools %}{{ field(tool.name, tool.parameters) }}{{ '\\n' }}{% endfor %}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}{% continue %}{% endif %}
{%- set ns.count = ns.count + 1 %}
{{- ns.count }}/{{ loop.length }} {{ message.role | upper }}: {% if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %} -> {{ call.name }}({{ call.arguments | tojson }}){% endfor %}
{{- '\\n' }}
{%- endfor %}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}
""",
}

WEATHER = {"name": "weather", "parameters": {"place": "string", "days": 2, "units": ["C", "F"]}}
CONVERSATIONS = {
    "a question": {"messages": [{"role": "user", "content": "Who are you?"}]},
    "spaces, quotes and other scripts": {
        "messages": [
            {"role": "system", "content": "  Be brief.\n"},
            {"role": "user", "content": " He said \"naïve café\" <b>&</b> 'x' {{ not_a_variable }} 😀 שלום "},
            {"role": "assistant", "content": "Ja — 猫。"},
            {"role": "user", "content": "\n\nWhy?\n"},
        ]
    },
    "roles that do not alternate": {
        "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    },
    "tools": {
        "messages": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Rain?"}]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"name": "weather", "arguments": {"place": "Zürich", "days": 1}}],
            },
            {"role": "tool", "content": "wet"},
            {"role": "assistant", "content": "Yes."},
        ],
        "tools": [WEATHER],
        "enable_thinking": False,
    },
}


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def render(template, variables):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = refuse
    try:
        text = environment.from_string(template).render(**SPECIAL, add_generation_prompt=True, **variables)
        return {"text": text}
    except Refused as refusal:
        return {"refusal": str(refusal)}


def main():
    cases = []
    for name, template in TEMPLATES.items():
        for what, variables in CONVERSATIONS.items():
            # The others have no case for content that is no text.
            if what != "tools" or "tools" in template:
                cases.append({"template": name, "conversation": what, **render(template, variables)})
    vectors = {"templates": TEMPLATES, "special": SPECIAL, "conversations": CONVERSATIONS, "cases": cases}
    path = Path(__file__).parent / "chat.json"
    path.write_text(json.dumps(vectors, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
