//! aSub record.

use crate::link::Link;
use crate::slot::{Text, record};
use base::Array;

record! {
    /// The fields of a aSub record.
    ASub {
        val: i32 [VAL],
        oval: i32 [OVAL],
        inam: Text<41> [INAM],
        lflg: u16 [LFLG],
        subl: Link [SUBL],
        snam: Text<41> [SNAM],
        onam: Text<41> [ONAM],
        brsv: u16 [BRSV],
        prec: i16 [PREC],
        eflg: u16 [EFLG],
        inp: [Link; 21] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL INPM INPN INPO INPP INPQ INPR INPS INPT INPU],
        a: [Array; 21] [A B C D E F G H I J K L M N O P Q R S T U],
        ft: [u16; 21] [FTA FTB FTC FTD FTE FTF FTG FTH FTI FTJ FTK FTL FTM FTN FTO FTP FTQ FTR FTS FTT FTU],
        no: [u32; 21] [NOA NOB NOC NOD NOE NOF NOG NOH NOI NOJ NOK NOL NOM NON NOO NOP NOQ NOR NOS NOT NOU],
        ne: [u32; 21] [NEA NEB NEC NED NEE NEF NEG NEH NEI NEJ NEK NEL NEM NEN NEO NEP NEQ NER NES NET NEU],
        out: [Link; 21] [OUTA OUTB OUTC OUTD OUTE OUTF OUTG OUTH OUTI OUTJ OUTK OUTL OUTM OUTN OUTO OUTP OUTQ OUTR OUTS OUTT OUTU],
        vala: [Array; 21] [VALA VALB VALC VALD VALE VALF VALG VALH VALI VALJ VALK VALL VALM VALN VALO VALP VALQ VALR VALS VALT VALU],
        ovla: [Array; 21] [OVLA OVLB OVLC OVLD OVLE OVLF OVLG OVLH OVLI OVLJ OVLK OVLL OVLM OVLN OVLO OVLP OVLQ OVLR OVLS OVLT OVLU],
        ftv: [u16; 21] [FTVA FTVB FTVC FTVD FTVE FTVF FTVG FTVH FTVI FTVJ FTVK FTVL FTVM FTVN FTVO FTVP FTVQ FTVR FTVS FTVT FTVU],
        nov: [u32; 21] [NOVA NOVB NOVC NOVD NOVE NOVF NOVG NOVH NOVI NOVJ NOVK NOVL NOVM NOVN NOVO NOVP NOVQ NOVR NOVS NOVT NOVU],
        nev: [u32; 21] [NEVA NEVB NEVC NEVD NEVE NEVF NEVG NEVH NEVI NEVJ NEVK NEVL NEVM NEVN NEVO NEVP NEVQ NEVR NEVS NEVT NEVU],
        onv: [u32; 21] [ONVA ONVB ONVC ONVD ONVE ONVF ONVG ONVH ONVI ONVJ ONVK ONVL ONVM ONVN ONVO ONVP ONVQ ONVR ONVS ONVT ONVU],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
