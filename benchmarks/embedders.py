"""How fast the embedders that compute on this machine are, and which languages they understand.

The texts are turns of the project's dialogues. An embedder may use several threads, so a rate is that of a core: texts by CPU time. What a
question takes is wall time.

The same eight questions are asked in each language about the same English notes, of which one answers. Hindi is a language that none of
the embedders was made for.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from benchmarks.baselines import embedders
from benchmarks.material import material
from benchmarks.measure import QUICK, Rounds, alternate, milli, table
from graphagent.memory import Notes

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

TEXTS = 500
NOTES = (
    "Grandmother is allergic to nuts.",
    "The spare key is under the flower pot.",
    "The train to the coast leaves at seven in the morning.",
    "We paid the plumber two hundred euros.",
    "My sister lives in Lisbon.",
    "The meeting with the bank was moved to Thursday.",
    "Paul broke his leg while skiing.",
    "The password of the wireless network is on the back of the router.",
    "The dog must not eat chocolate.",
    "The car key is in the drawer of the desk.",
    "The museum is closed on Mondays.",
    "The heating costs ninety euros a month.",
    "Our neighbours moved to Canada.",
    "The dentist can see us on Friday.",
    "Anna has had a cold since Sunday.",
    "The printer is in the cellar.",
    "For dessert there is apple cake.",
    "The concert begins at eight in the evening.",
    "The parcel arrived yesterday.",
    "Please water the plants twice a week.",
)
QUESTIONS = {
    "Arabic (`ar`)": (
        "ما الذي يجب ألا تأكله الجدة؟",
        "أين أجد المفتاح الثاني للبيت؟",
        "متى نسافر إلى البحر؟",
        "كم كلف إصلاح الأنبوب؟",
        "في أي مدينة تسكن أختي؟",
        "في أي يوم نلتقي بموظفي البنك؟",
        "من تعرض لحادث في الثلج؟",
        "كيف أتصل بالإنترنت هنا؟",
    ),
    "Chinese (`zh`)": (
        "奶奶不能吃什么？",
        "在哪里能找到家里的第二把钥匙？",
        "我们什么时候去海边？",
        "修水管花了多少钱？",
        "我姐姐住在哪个城市？",
        "我们哪天和银行的人见面？",
        "谁在雪地里出了事故？",
        "在这里怎么上网？",
    ),
    "Dutch (`nl`)": (
        "Wat mag oma niet eten?",
        "Waar vind ik de tweede sleutel van het huis?",
        "Wanneer reizen we naar zee?",
        "Hoeveel heeft de reparatie van de leiding gekost?",
        "In welke stad heeft mijn zus haar woning?",
        "Op welke dag zien we de mensen van de bank?",
        "Wie heeft een ongeluk gehad in de sneeuw?",
        "Hoe kom ik hier op internet?",
    ),
    "English (`en`)": (
        "What must Grandma not eat?",
        "Where can I find the second key to the house?",
        "When do we travel to the sea?",
        "How much did the repair of the pipe cost?",
        "In which city does my sister have her flat?",
        "On which day do we see the people from the bank?",
        "Who had an accident in the snow?",
        "How do I get onto the internet here?",
    ),
    "French (`fr`)": (
        "Qu'est-ce que mamie ne doit pas manger ?",
        "Où trouver la deuxième clé de la maison ?",
        "Quand partons-nous à la mer ?",
        "Combien a coûté la réparation du tuyau ?",
        "Dans quelle ville ma sœur a-t-elle son appartement ?",
        "Quel jour voyons-nous les gens de la banque ?",
        "Qui a eu un accident dans la neige ?",
        "Comment me connecter à internet ici ?",
    ),
    "German (`de`)": (
        "Was darf Oma nicht essen?",
        "Wo finde ich den zweiten Schlüssel zum Haus?",
        "Wann fahren wir ans Meer?",
        "Wie viel hat die Reparatur des Rohrs gekostet?",
        "In welcher Stadt hat meine Schwester ihre Wohnung?",
        "An welchem Tag treffen wir die Leute von der Bank?",
        "Wer hatte einen Unfall im Schnee?",
        "Wie komme ich hier ins Internet?",
    ),
    "Italian (`it`)": (
        "Che cosa non deve mangiare la nonna?",
        "Dove trovo la seconda chiave di casa?",
        "Quando andiamo al mare?",
        "Quanto è costata la riparazione del tubo?",
        "In quale città mia sorella ha il suo appartamento?",
        "In che giorno vediamo quelli della banca?",
        "Chi ha avuto un incidente sulla neve?",
        "Come mi collego a internet qui?",
    ),
    "Japanese (`ja`)": (
        "おばあちゃんが食べてはいけないものは何ですか？",
        "家のもう一つの鍵はどこにありますか？",
        "海へはいつ出かけますか？",
        "配管の修理にいくらかかりましたか？",
        "姉はどの街に住んでいますか？",
        "銀行の人と会うのは何曜日ですか？",
        "雪の中で事故に遭ったのは誰ですか？",
        "ここではどうやってインターネットに接続しますか？",
    ),
    "Korean (`ko`)": (
        "할머니가 먹으면 안 되는 것은 무엇인가요?",
        "집의 두 번째 열쇠는 어디에 있나요?",
        "우리는 언제 바다로 떠나나요?",
        "배관 수리비는 얼마였나요?",
        "우리 언니는 어느 도시에 사나요?",
        "은행 사람들을 무슨 요일에 만나나요?",
        "눈 속에서 사고를 당한 사람은 누구인가요?",
        "여기서 인터넷에 어떻게 연결하나요?",
    ),
    "Polish (`pl`)": (
        "Czego babcia nie może jeść?",
        "Gdzie znajdę drugi klucz do domu?",
        "Kiedy jedziemy nad morze?",
        "Ile kosztowała naprawa rury?",
        "W jakim mieście mieszka moja siostra?",
        "W którym dniu spotykamy się z ludźmi z banku?",
        "Kto miał wypadek na śniegu?",
        "Jak połączyć się tutaj z internetem?",
    ),
    "Portuguese (`pt`)": (
        "O que a avó não pode comer?",
        "Onde encontro a segunda chave da casa?",
        "Quando viajamos para o mar?",
        "Quanto custou o conserto do cano?",
        "Em que cidade a minha irmã tem o apartamento dela?",
        "Em que dia nos reunimos com o pessoal do banco?",
        "Quem sofreu um acidente na neve?",
        "Como acesso a internet aqui?",
    ),
    "Russian (`ru`)": (
        "Что нельзя есть бабушке?",
        "Где найти второй ключ от дома?",
        "Когда мы едем к морю?",
        "Сколько стоил ремонт трубы?",
        "В каком городе живёт моя сестра?",
        "В какой день мы встречаемся с людьми из банка?",
        "С кем случилось несчастье на снегу?",
        "Как здесь выйти в интернет?",
    ),
    "Spanish (`es`)": (
        "¿Qué no debe comer la abuela?",
        "¿Dónde encuentro la segunda llave de la casa?",
        "¿Cuándo viajamos al mar?",
        "¿Cuánto costó la reparación de la tubería?",
        "¿En qué ciudad tiene su piso mi hermana?",
        "¿Qué día vemos a la gente del banco?",
        "¿Quién tuvo un accidente en la nieve?",
        "¿Cómo me conecto a internet aquí?",
    ),
    "Thai (`th`)": (
        "คุณยายห้ามกินอะไร",
        "กุญแจบ้านดอกที่สองอยู่ที่ไหน",
        "เราจะไปทะเลเมื่อไหร่",
        "ค่าซ่อมท่อเท่าไหร่",
        "พี่สาวของฉันอยู่เมืองไหน",
        "เรานัดพบคนจากธนาคารวันไหน",
        "ใครประสบอุบัติเหตุในหิมะ",
        "ที่นี่เชื่อมต่ออินเทอร์เน็ตอย่างไร",
    ),
    "Turkish (`tr`)": (
        "Büyükanne ne yememeli?",
        "Evin ikinci anahtarını nerede bulurum?",
        "Denize ne zaman gidiyoruz?",
        "Borunun tamiri ne kadar tuttu?",
        "Kız kardeşim hangi şehirde oturuyor?",
        "Bankadan gelenlerle hangi gün görüşüyoruz?",
        "Karda kim kaza geçirdi?",
        "Burada internete nasıl bağlanırım?",
    ),
    "Hindi (`hi`)": (
        "दादी को क्या नहीं खाना चाहिए?",
        "घर की दूसरी चाबी कहाँ मिलेगी?",
        "हम समुद्र कब जा रहे हैं?",
        "पाइप की मरम्मत में कितना खर्च हुआ?",
        "मेरी बहन किस शहर में रहती है?",
        "हम बैंक वालों से किस दिन मिलेंगे?",
        "बर्फ़ में किसका हादसा हुआ?",
        "यहाँ इंटरनेट से कैसे जुड़ें?",
    ),
}
"""For each language the questions that the first of the notes answer, in their order."""


def report(*, quick: bool) -> str:
    """Measure all embedders that are installed. Return two Markdown tables."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    rounds = QUICK if quick else Rounds()
    turns = [said.text for each in material("dialogue") for session in each.sessions for said in session]
    speed = await _speed(turns[: 20 if quick else TEXTS], rounds)
    return f"{speed}\n\n{await _languages(quick=quick)}"


async def _speed(texts: list[str], rounds: Rounds) -> str:
    there = embedders()
    for each in there.values():
        await each.embed(texts[:1])
    many = {name: functools.partial(each.embed, texts) for name, each in there.items()}
    one = {name: functools.partial(each.embed, texts[:1]) for name, each in there.items()}
    took = await alternate(many, rounds)
    waited = await alternate(one, rounds, clock=time.perf_counter)
    rows = [
        [name, f"{len(texts) / statistics.median(took[name]):,.0f}", milli(statistics.median(waited[name]))]
        for name in there
    ]
    length = statistics.mean(map(len, texts))
    return table([f"texts of {length:.0f} characters", "a second and core", "a question"], rows)


async def _languages(*, quick: bool) -> str:
    there = embedders()
    rows: list[list[str]] = []
    for language, questions in list(QUESTIONS.items())[: 2 if quick else None]:
        rows.append([language, *[str(await _right(each, questions)) for each in there.values()]])
    return table(["the right one of 20 notes first, of 8 questions in", *there], rows)


async def _right(embedder: Embedder, questions: Sequence[str]) -> int:
    """Return how many of the questions find the note that answers them first."""
    with tempfile.TemporaryDirectory() as folder:
        async with Notes(Path(folder) / "notes.db", embedder=embedder) as notes:
            await notes.remember_many(NOTES)
            found = [await notes.recall(question, limit=1) for question in questions]
    return sum(
        [match.record.content for match in matches] == [note] for matches, note in zip(found, NOTES, strict=False)
    )
